"""Agents of these tests are watched: how long their loops work without looking up."""

import pytest


@pytest.fixture(autouse=True)
def watched(turns_told):
    """All agents that are started from now on."""
