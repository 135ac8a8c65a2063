"""Stories in which links cost their delay, and delays change: parents within the slack."""

import pytest

from federator.protocol.routing.core_route import CoreRoute
from lab.sim.campaign import draw, run
from lab.sim.story import Kind
from tests.lab.sim.violations import assert_caught

MUTANT_SEEDS_MAX = 50


def drawn(seed):
    return draw(Kind.ROUTES, seed, nodes=4 + seed % 6, by_delay=True)


def only_ties(monkeypatch):
    """Nothing but ties of least cost become parents."""
    original = CoreRoute.choose

    def choose(self, link_cost, *, redundancy, slack_percent):
        original(self, link_cost, redundancy=redundancy, slack_percent=0)

    monkeypatch.setattr(CoreRoute, "choose", choose)


def by_first_words(monkeypatch):
    """What we are about to say does not count: who is as far from the core may be a parent."""
    original = CoreRoute.choose

    def choose(self, *args, **kwargs):
        said, self.feasible_cost = self.feasible_cost, 2**31
        original(self, *args, **kwargs)
        self.feasible_cost = min(said, self.cost)

    monkeypatch.setattr(CoreRoute, "choose", choose)


@pytest.mark.parametrize(
    ("mutate", "invariant"),
    [(only_ties, "converges"), (by_first_words, "cost_falls_towards_the_core")],
)
def test_mutant_is_caught(monkeypatch, mutate, invariant):
    mutate(monkeypatch)

    assert_caught(map(run, map(drawn, range(MUTANT_SEEDS_MAX))), {invariant})
