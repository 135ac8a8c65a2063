"""Stories in every manner: nothing forbidden ever happens, everything heals, every fault fires."""

from collections import Counter
from functools import cache

import pytest

from federator.protocol.parameters import Strategy
from lab.sim.campaign import draw, run
from lab.sim.faults import WITH_REAL_CLIENTS
from lab.sim.plan import MIXED
from lab.sim.story import FaultKind, Kind, MoveKind
from tests.effort import seeds

SHARE_MIN = 0.01
STRAIGHT = Strategy.SHORTEST_PATH.value
STEERED = {"steered": True, "strategy": STRAIGHT}
MIXTURE = {"steered": True, "strategy": MIXED}

# Kind, manner, seeds, and of stories of routes the fewest nodes and of how many sizes they are.
CAMPAIGNS = {
    "routes": (Kind.ROUTES, {}, seeds(200), (2, 16)),
    "calm": (Kind.ROUTES, {"faulty": False}, 40, (2, 9)),
    "by delay": (Kind.ROUTES, {"by_delay": True}, seeds(15), (4, 6)),
    "outbound": (Kind.ROUTES, {"outbound": True}, seeds(30), (2, 8)),
    "shortest path": (Kind.ROUTES, {"strategy": STRAIGHT}, seeds(60), (2, 12)),
    "mixed": (Kind.ROUTES, {"strategy": MIXED}, seeds(60), (2, 12)),
    "steered": (Kind.ROUTES, STEERED, 12, (8, 1)),
    "steered mixture": (Kind.ROUTES, MIXTURE, 12, (8, 1)),
    "edges": (Kind.ROUTES, STEERED | {"edges": True}, 24, (8, 1)),
    "edges mixture": (Kind.ROUTES, MIXTURE | {"edges": True}, 24, (8, 1)),
    "messages": (Kind.MESSAGES, {}, seeds(150), None),
    "messages by delay": (Kind.MESSAGES, {"by_delay": True}, seeds(15), None),
    "messages outbound": (Kind.MESSAGES, {"outbound": True}, seeds(30), None),
    "messages shortest path": (Kind.MESSAGES, {"strategy": STRAIGHT}, seeds(60), None),
    "messages mixed": (Kind.MESSAGES, {"strategy": MIXED}, seeds(60), None),
    "messages steered": (Kind.MESSAGES, STEERED, 12, None),
    "messages edges": (Kind.MESSAGES, STEERED | {"edges": True}, 48, None),
    "failover": (Kind.FAILOVER, {}, seeds(60), None),
    "failover shortest path": (Kind.FAILOVER, {"strategy": STRAIGHT}, seeds(12), None),
    "failover mixed": (Kind.FAILOVER, {"strategy": MIXED}, seeds(12), None),
    "hubs": (Kind.MESSAGES, {"hubs": True}, seeds(20), None),
    "attack": (Kind.ATTACK, {}, seeds(24), None),
}


@cache
def results_of(name):
    kind, manner, count, sizes = CAMPAIGNS[name]
    found = []
    for seed in range(count):
        nodes = {"nodes": sizes[0] + seed % sizes[1]} if sizes else {}
        found.append(run(draw(kind, seed, **nodes, **manner)))
    return found


PLANS = {"planned frame", "tree torn", "notice steer.followed", "notice steer.ended"}
REFUSED = {f"refused {kind}" for kind in ("hello", "ctl", "core_ann", "mesh_memb_ann", "data")}
HAPPENS = {
    "outbound": ({"outbox_unheard"}, 1),
    "steered": (PLANS, 4),
    "steered mixture": (PLANS, 4),
    "messages steered": ({"planned frame"}, 3),
    "edges": ({"kept"}, 4),
    "edges mixture": ({"kept"}, 4),
    "messages edges": ({"excused kept"}, 3),
    "hubs": ({"hub filter lingers"}, 1),
    "attack": ({f"move {kind}" for kind in MoveKind} | REFUSED, 1),
}
"""In at least so many stories."""


def stories_by_event(results):
    return Counter(what for r in results for what, times in r.fired.items() if times)


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_every_invariant_holds_every_federation_heals_and_what_it_is_about_happens(name):
    results = results_of(name)

    violated = [f"{r.seed}, {r.nodes} nodes: {r.violation}" for r in results if r.violation]
    assert not violated, "\n".join(violated)
    stories, (wanted, least) = stories_by_event(results), HAPPENS.get(name, ((), 0))
    assert {what: stories[what] for what in wanted if stories[what] < least} == {}


def test_leaves_choose_another_hub_more_than_once_a_story():
    results = results_of("hubs")

    assert sum(each.fired.get("hub chosen", 0) for each in results) > len(results)


RARE = {
    "routes": {f"fault {kind}" for kind in FaultKind if kind not in WITH_REAL_CLIENTS} | {
        "clog", "dial_back", "duplicate_suppressed", "duplication", "long_pause", "loss",
        "notice core.lost", "notice link.down", "renew_epoch", "sent list_page", "sent retraction",
        "sent solicit", "silent_drop", "takeover", "will",
    },
    "messages": {f"fault {kind}" for kind in FaultKind} | {
        "crash between writes", "duplicate_suppressed", "excused log full", "loss",
        "notice discovery.ambiguous", "notice discovery.untrusted", "repair asked", "repair sent",
    },
    "failover": {"moved for death", "moved for drain", "notice controller.changed", "fault split"},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", RARE)
def test_every_kind_of_trouble_and_of_remedy_happens_in_one_seed_of_a_hundred(name):
    results = results_of(name)
    stories = stories_by_event(results)

    rare = {what for what in RARE[name] if stories[what] < SHARE_MIN * len(results)}
    assert not rare


@pytest.mark.parametrize("kind", Kind)
def test_a_story_can_be_told_again(kind):
    assert run(draw(kind, 7, nodes=5)) == run(draw(kind, 7, nodes=5))


def test_mixed_has_brokers_of_both_kinds():
    plans = [draw(Kind.ROUTES, seed, nodes=8, strategy=MIXED).plan for seed in range(20)]

    assert any(0 < len(plan.shortest) < 8 for plan in plans)
    assert {id for plan in plans for id in plan.shortest} == set(range(8))
