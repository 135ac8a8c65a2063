"""Brokers that join by one of them, in a simulated world."""

from functools import partial

import pytest

from lab.sim import campaign
from lab.sim.campaign import run
from lab.sim.story import Kind

draw = partial(campaign.draw, Kind.JOINING)


@pytest.mark.timeout(900)
def test_every_seed_settles_whatever_befalls_it():
    fired = set()
    for seed in range(8):
        result = run(draw(seed, nodes=4 + 2 * seed))
        assert result.violation is None, f"seed {seed}: {result.violation}"
        fired |= set(result.fired)

    assert {"death", "split", "heal", "notice topology.link_given_up"} <= fired


def test_a_seed_that_returns_is_not_dialled_as_neighbour_and_as_seed():
    """Both would be one client of its broker, which disconnects one when the other connects."""
    result = run(draw(191, nodes=10))

    assert result.violation is None, result.violation


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_hundred_join_by_one():
    result = run(draw(1, nodes=100, faulty=False, neighbours=6))

    assert result.violation is None, result.violation
