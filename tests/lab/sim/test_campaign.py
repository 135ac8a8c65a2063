"""Two hundred seeds: nothing forbidden ever happens, everything heals, and every fault fired."""

from collections import Counter

import pytest

from lab.sim.campaign import draw, run
from lab.sim.faults import WITH_REAL_CLIENTS
from lab.sim.story import FaultKind, Kind
from tests.effort import seeds
from tests.lab.sim.violations import violations

SEEDS = seeds(200)
SHARE_MIN = 0.01


@pytest.fixture(scope="module")
def results():
    return [run(draw(Kind.ROUTES, seed, nodes=2 + seed % 16)) for seed in range(SEEDS)]


def test_every_invariant_holds_and_every_federation_heals(results):
    violated = violations(results, nodes=True)

    assert not violated, "\n".join(violated)


@pytest.mark.slow
def test_every_kind_of_fault_and_of_repair_happens_in_one_seed_of_a_hundred(results):
    stories = Counter(name for r in results for name, times in r.fired.items() if times)

    wanted = {f"fault {kind}" for kind in FaultKind if kind not in WITH_REAL_CLIENTS} | {
        "clog", "dial_back", "duplicate_suppressed", "duplication", "long_pause", "loss",
        "notice core.lost", "notice link.down", "renew_epoch", "sent list_page", "sent retraction",
        "sent solicit", "silent_drop", "takeover", "will",
    }  # fmt: skip
    rare = {name: stories[name] for name in wanted if stories[name] < SHARE_MIN * SEEDS}
    assert not rare
