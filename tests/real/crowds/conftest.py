"""Agents of these tests are watched: how long their loops work without looking up."""

import pytest

from tests.real import turns
from tests.real.undisturbed import TURN_MS


@pytest.fixture(autouse=True)
def turns_judged(turns_told):
    """No crowd makes a turn of any loop long; before their mends they took 10,000 ms and more."""
    yield
    longest = turns.longest_turn(turns_told)
    assert longest.ms < TURN_MS, longest
