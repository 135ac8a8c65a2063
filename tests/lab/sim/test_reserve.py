"""A leaf with two hubs: one serves, the other one keeps all that it may need."""

from federator.protocol.types import BrokerId
from lab.sim.campaign import run
from lab.sim.plan import BrokerPlan, LinkPlan, Port, SubscriberPlan, WorldPlan
from lab.sim.story import Fault, FaultKind, Kind, Publication, Story

HUB, OTHER, LEAF, FAR = map(BrokerId, (1, 2, 10, 11))
PLACES = {LEAF: (BrokerId(1_000), BrokerId(1_001)), FAR: (BrokerId(1_002), BrokerId(1_003))}


def test_a_leaf_that_was_stopped_misses_nothing():
    """Two leaves prefer the same hub; what one of them says while the other stands is wanted."""
    ports = tuple(
        Port(place, hub, leaf)
        for leaf, places in PLACES.items()
        for hub, place in zip((HUB, OTHER), places, strict=True)
    )
    links = [LinkPlan(HUB, OTHER, configured=(OTHER,))]
    links += [LinkPlan(each.leaf, each.id, configured=(each.leaf,)) for each in ports]
    ids = (HUB, OTHER, LEAF, FAR, *(each.id for each in ports))
    plan = WorldPlan(
        ids,
        tuple(links),
        shortest=frozenset(ids[2:]),
        start_ms_max=200,
        reconnect_ms_max=500,
        roaming=PLACES,
        brokers={id: BrokerPlan(sys_interval_ms=1_000) for id in ids},
        subscribers=(SubscriberPlan("s", LEAF, (("site/1/a", 1),), start_ms=1_000),),
        ports=ports,
        return_after_ms=1_000,
    )
    story = Story(
        kind=Kind.MESSAGES,
        seed=1,
        topology="hubs",
        plan=plan,
        faults=(Fault(FaultKind.AGENT_PAUSE, 10_000, 24_000, node=LEAF),),
        publications=(Publication(14_000, FAR, "site/1/a", 1, "p", 1, 50),),
        settle_ms=9_000,
        heal_ms=30_000,
    )

    violation = run(story).violation

    assert violation is None, violation
