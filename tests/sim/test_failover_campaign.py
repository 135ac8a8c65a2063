"""Elections and takeovers of the same code in the simulated world, and proof that mistakes show."""

import pytest

from federator.protocol.controller.failover import Failover
from federator.protocol.controller.office import Office
from federator.protocol.controller.presence import Presence
from federator.sim.failover.campaign import run_failover
from federator.sim.failover.story import draw

SEEDS = 60
MUTANT_SEEDS_MAX = 200


def test_every_seed_agrees_and_nobody_is_moved_twice_for_one_event():
    fired = set()
    for seed in range(SEEDS):
        result = run_failover(draw(seed))
        assert result.violation is None, f"seed {seed}: {result.violation}"
        fired |= set(result.fired)

    wanted = {"moved for death", "moved for drain", "fault split", "notice controller.changed"}
    assert wanted <= fired


@pytest.mark.parametrize("strategy", ["shortest-path", "mixed"])
def test_controllers_agree_under_every_routing(strategy):
    for seed in range(12):
        result = run_failover(draw(seed, strategy=strategy))
        assert result.violation is None, f"seed {seed}: {result.violation}"


def decide_anew(self, situation, table):
    self.takeovers = {}
    self.plans = {}
    decide(self, situation, table)


def terms_stand(self, *, rival):
    self.term, self.number = 1, 1


def adopts_nothing(self, now_ms):
    if self.holds_office:
        return
    adopt(self, now_ms)


def plans_once(self, situation, table):
    if not self.plans:
        replan(self, situation, table)


def nobody_is_back(self, id, record):
    if id in self.known and self.known[id].gone:
        return False
    return come(self, id, record)


decide, replan = Office.decide, Office.replan
adopt, come = Failover._adopt, Presence.come

MUTANTS = [
    (Office, "decide", decide_anew),
    (Office, "take", terms_stand),
    (Office, "replan", plans_once),
    (Failover, "_adopt", adopts_nothing),
    (Presence, "come", nobody_is_back),
]


@pytest.mark.parametrize(("owner", "name", "mutant"), MUTANTS)
def test_a_mistake_is_found_within_200_seeds(monkeypatch, owner, name, mutant):
    monkeypatch.setattr(owner, name, mutant)

    found = (run_failover(draw(seed)).violation for seed in range(MUTANT_SEEDS_MAX))

    assert any(violation is not None for violation in found)
