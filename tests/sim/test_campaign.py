"""Two hundred seeds: nothing forbidden ever happens, everything heals, and every fault fired."""

from collections import Counter

import pytest

from federator.sim import scenario
from federator.sim.campaign import run_scenario
from federator.sim.faults import FaultKind

SEEDS = 200
SHARE_MIN = 0.01

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def results():
    return [run_scenario(scenario.draw(seed, nodes=2 + seed % 16)) for seed in range(SEEDS)]


def test_every_invariant_holds_and_every_federation_heals(results):
    violated = [
        f"federator sim --nodes {r.nodes} --seed {r.seed} --seeds 1: {r.violation}"
        for r in results
        if r.violation is not None
    ]

    assert not violated, "\n".join(violated)


def test_every_kind_of_fault_and_of_repair_happens_in_one_seed_of_a_hundred(results):
    seeds = Counter(name for r in results for name, times in r.fired.items() if times)

    wanted = {f"fault {kind.value}" for kind in FaultKind} | {
        "clog", "dial_back", "duplicate_suppressed", "duplication", "hang_up", "long_pause", "loss",
        "notice core.lost", "notice link.down", "renew_epoch", "sent list_page", "sent retraction",
        "sent solicit", "silent_drop", "takeover", "will",
    }  # fmt: skip
    rare = {name: seeds[name] for name in wanted if seeds[name] < SHARE_MIN * SEEDS}
    assert not rare
