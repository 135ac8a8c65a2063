"""Elections and takeovers of the same code in the simulated world, and proof that mistakes show."""

from functools import partial

import pytest

from federator.protocol.controller.duties import ControllerDuties
from federator.protocol.controller.failover import Failover
from federator.protocol.controller.presence import BrokerPresence
from lab.sim import campaign
from lab.sim.campaign import run
from lab.sim.story import Kind

draw = partial(campaign.draw, Kind.FAILOVER)

MUTANT_SEEDS_MAX = 200


def decide_anew(self, situation, table):
    self.takeovers = {}
    self.plans = {}
    decide(self, situation, table)


def terms_stand(self, *, after):
    self.term, self.number = 1, 1


def adopts_nothing(self, now_ms):
    if self.is_controller:
        return
    adopt(self, now_ms)


def plans_once(self, situation, table):
    if not self.plans:
        replan(self, situation, table)


def nobody_is_back(self, id, record):
    if id in self.known and self.known[id].gone:
        return False
    return come(self, id, record)


decide, replan = ControllerDuties.decide, ControllerDuties.replan
adopt, come = Failover._adopt, BrokerPresence.come

MUTANTS = [
    (ControllerDuties, "decide", decide_anew, 0),
    (ControllerDuties, "begin_term", terms_stand, 0),
    (ControllerDuties, "replan", plans_once, 0),
    (Failover, "_adopt", adopts_nothing, 27),
    (BrokerPresence, "come", nobody_is_back, 1),
]


@pytest.mark.parametrize(("owner", "name", "mutant", "first"), MUTANTS)
def test_a_mistake_is_found_within_200_seeds(monkeypatch, owner, name, mutant, first):
    """``first``: which seed is tried before all others, because it shows the mistake soonest."""
    monkeypatch.setattr(owner, name, mutant)

    seeds_tried = sorted(range(MUTANT_SEEDS_MAX), key=lambda seed: seed != first)
    found = (run(draw(seed)).violation for seed in seeds_tried)

    assert any(violation is not None for violation in found)
