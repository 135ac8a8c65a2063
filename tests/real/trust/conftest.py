"""Agents of these tests are watched: how long their loops work without looking up."""

import pytest

from tests.real.trust.test_signed import Office


@pytest.fixture(autouse=True)
def watched(turns_told):
    """All agents that are started from now on."""


@pytest.fixture
def office(tmp_path):
    return Office(tmp_path / "office")
