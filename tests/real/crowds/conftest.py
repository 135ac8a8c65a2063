"""Agents of these tests are watched: how long their loops work without looking up."""

import pytest

from tests.real import turns

TURN_MS = 500
"""No crowd makes a turn of the loop longer. Most are below 50 where nothing else runs, and three
times as long beside other tests; before their mends these attacks took 10,000 and more."""


@pytest.fixture(autouse=True)
def turns_told(tmp_path, monkeypatch):
    """The folder in which agents tell their turns; all are judged in the end."""
    folder = tmp_path / "turns"
    folder.mkdir()
    monkeypatch.setenv(turns.FOLDER, str(folder))
    yield folder
    longest = turns.longest_turn(folder)
    assert longest.ms < TURN_MS, longest
