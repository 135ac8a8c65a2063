"""Stories of leaves with two hubs: one serves, the other one keeps all that it may need."""

from functools import partial

import pytest

from federator.protocol.data.plane import DataPlane
from federator.protocol.filters import CoverChange
from federator.protocol.leaves import hub_choice
from federator.protocol.leaves.serving import Serving
from federator.protocol.leaves.stamps import StampBook
from federator.protocol.leaves.switch import Switch
from federator.protocol.types import BrokerId
from lab.sim.campaign import draw, run
from lab.sim.plan import BrokerPlan, LinkPlan, Port, SubscriberPlan, WorldPlan
from lab.sim.story import Fault, FaultKind, Kind, Publication, Story
from tests.lab.sim.violations import assert_caught

SEEDS_MAX = 1_000


def acknowledges_early(monkeypatch):
    """A hub tells its broker to forget a publication before it is in the log."""
    take = DataPlane.on_publishes

    def acknowledge_first(self, chunk, publishes, now):
        ids = [(packet.packet_id, 1) for packet, _, _ in publishes if packet.packet_id is not None]
        stamps = self.delivery.stamps
        if ids and stamps is not None and stamps.book.secret is not None:
            link = self.delivery.link
            link.acknowledge(ids, session_number=link.session_number)
        take(self, chunk, publishes, now)

    monkeypatch.setattr(DataPlane, "on_publishes", acknowledge_first)


def misses_a_filter(monkeypatch):
    """What a leaf wants is summed up so that one filter is left out."""
    hear = Switch.change

    def hear_less(self, source, demand, now_ms):
        less = CoverChange(demand.subscribe[:-1], demand.unsubscribe)
        return hear(self, source, less if isinstance(source, int) else demand, now_ms)

    monkeypatch.setattr(Switch, "change", hear_less)


def both_serve(monkeypatch):
    """A leaf returns to the old hub, and the other one goes on serving."""
    choose, hear = Serving.choose, Serving.on_announced

    def choose_besides(self, served, others, *, resumes=False):
        return choose(self, served, () if self.served else others, resumes=resumes)

    def go_on(self, leaf, *, now_ms):
        before = self.of(leaf)
        serves = before is not None and before.hub == self._self_id
        return [] if serves else hear(self, leaf, now_ms=now_ms)

    monkeypatch.setattr(Serving, "choose", choose_besides)
    monkeypatch.setattr(Serving, "on_announced", go_on)


def knows_nothing_again(monkeypatch):
    """What comes by both hubs is new each time."""
    monkeypatch.setattr(StampBook, "find", lambda self, stamp: None)


def looks_not_back(monkeypatch):
    """What was under way when the hub died is not asked for at the other one."""
    choose = hub_choice.HubChoice._choose

    def choose_from_now(self, hub, now):
        self._look_back_us, self._behind_us = 0, now.us
        return choose(self, hub, now)

    monkeypatch.setattr(hub_choice.HubChoice, "_choose", choose_from_now)


TWICE = {"once_per_subscriber", "once_per_broker"}
MUTANTS = (
    (acknowledges_early, 1, {"logged_before_acknowledged"}),
    (misses_a_filter, 0, {"arrives_in_the_calm", "owed", "converges"}),
    (both_serve, 1, {"once_per_subscriber", "once_per_broker", "converges"}),
    (
        knows_nothing_again,
        0,
        {"once_per_subscriber", "once_per_broker", "not_back_home", "in_order"},
    ),
    (looks_not_back, 11, {"owed"}),
)


@pytest.mark.parametrize(("mutate", "first", "invariants"), MUTANTS)
def test_a_mutant_is_caught(monkeypatch, mutate, first, invariants):
    """``first``: where to begin, for the sake of time; it is found from 0 on, too."""
    mutate(monkeypatch)

    drawn = map(partial(draw, Kind.MESSAGES, hubs=True), range(first, first + SEEDS_MAX))
    assert_caught(map(run, drawn), invariants)


HUB, OTHER, LEAF, FAR = map(BrokerId, (1, 2, 10, 11))
PLACES = {LEAF: (BrokerId(1_000), BrokerId(1_001)), FAR: (BrokerId(1_002), BrokerId(1_003))}


def told(*faults, wanted_at, publisher, at_ms, count=1, return_after_ms=0):
    """Two hubs with two leaves, of which both prefer the first; what ``publisher`` says is wanted
    at one broker.
    """
    ports = tuple(
        Port(place, hub, leaf)
        for leaf, places in PLACES.items()
        for hub, place in zip((HUB, OTHER), places, strict=True)
    )
    links = [LinkPlan(HUB, OTHER, configured=(OTHER,))]
    links += [LinkPlan(each.leaf, each.id, configured=(each.leaf,)) for each in ports]
    ids = (HUB, OTHER, LEAF, FAR, *(each.id for each in ports))
    client = SubscriberPlan("s", wanted_at, (("site/1/a", 1),), start_ms=1_000)
    brokers = {id: BrokerPlan(sys_interval_ms=1_000) for id in ids}
    said = Publication(at_ms, publisher, "site/1/a", count, "p", 1, 50)
    return run(
        Story(
            kind=Kind.MESSAGES,
            seed=1,
            topology="hubs",
            plan=WorldPlan(
                ids,
                tuple(links),
                shortest=frozenset(ids[2:]),
                start_ms_max=200,
                reconnect_ms_max=500,
                roaming=PLACES,
                brokers=brokers,
                subscribers=(client,),
                ports=ports,
                return_after_ms=return_after_ms,
            ),
            faults=faults,
            publications=(said,),
            settle_ms=9_000,
            heal_ms=30_000,
        )
    ).violation


def gone(node, from_ms, until_ms, kind=FaultKind.HOST_CRASH):
    return Fault(kind, from_ms, until_ms, node=node)


def test_a_leaf_that_was_stopped_misses_nothing():
    violation = told(
        gone(LEAF, 10_000, 24_000, FaultKind.AGENT_PAUSE),
        publisher=FAR,
        wanted_at=LEAF,
        at_ms=14_000,
        return_after_ms=1_000,
    )

    assert violation is None, violation
