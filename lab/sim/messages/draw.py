"""Draws the story with real clients that a seed means, and the one of hubs and leaves."""

import random
from dataclasses import replace

from federator.protocol.parameters import Parameters
from federator.protocol.types import BrokerId, Millis
from lab.sim import topologies
from lab.sim.faults import draw_edge_faults, draw_faults, in_time
from lab.sim.manner import Manner
from lab.sim.messages.hubs import FILTERS_MAX, draw_areas, draw_ports, roaming_in
from lab.sim.plan import RECORDS_MAX, BrokerPlan, Link, SubscriberPlan, WorldPlan
from lab.sim.routes.draw import FILTERS, TOPICS, draw_link, pool_of
from lab.sim.steering import draw_collected, draw_plans, with_edges
from lab.sim.story import Fault, FaultKind, Kind, PlanMoment, Publication, Resubscription, Story
from lab.sim.topics import topic_matches

NODES_MAX = 9
START_MS_MAX = 200
FAULTY_MS = 15_000
LONG_FAULTY_MS = 70_000
"""Now and then: longer than a log line, a session of the agent and any lifetime are kept."""

AWKWARD_IDS = ("sp", "sp 0 ace", "a b", "x 1 a/+")
"""Client ids that make log lines with several readings."""


def draw(seed: int, how: Manner) -> Story:
    """The story of ``seed``, with so many brokers, or few."""
    if how.hubs or how.areas:
        return _draw_hubs(seed, how)
    rng = random.Random(f"messages {seed} {how.nodes} {how.topology}")
    nodes = how.nodes or rng.choice((2, 3, 3, 4, 4, 5, 6, 7, NODES_MAX))
    name, raw_links = topologies.draw(how.topology, nodes, rng)
    ids = sorted(BrokerId(id) for id in range(1, nodes + 1))
    shuffled = rng.sample(ids, len(ids))
    links: list[Link] = [(shuffled[a], shuffled[b]) for a, b in raw_links]
    plan = _draw_plan(rng, ids, links)
    settle_ms = 4_000 + 3 * max(each.sys_interval_ms for each in plan.brokers.values())
    heal_ms = settle_ms + (LONG_FAULTY_MS if rng.random() < 0.1 else FAULTY_MS)
    plan = how.applied_to(plan, seed=seed, from_ms=settle_ms, until_ms=heal_ms)
    spell = {"start_ms": settle_ms, "end_ms": heal_ms}
    clients = [each.id for each in plan.subscribers]
    faults: tuple[Fault, ...] = ()
    if how.faulty:
        faults = draw_faults(rng, ids=ids, links=links, count=rng.randint(0, 5), **spell)
        more = draw_edge_faults(rng, ids=ids, clients=clients, count=rng.randint(0, 4), **spell)
        faults = in_time((*faults, *more))
    plans: tuple[PlanMoment, ...] = ()
    if how.steered:
        plan, plans = _draw_steered(plan, seed, edges=how.edges, **spell)
    return Story(
        kind=Kind.MESSAGES,
        seed=seed,
        plans=plans,
        topology=name,
        plan=plan,
        faults=faults,
        changes=_draw_changes(rng, plan, settle_ms, heal_ms),
        publications=_draw_publications(rng, ids, settle_ms, heal_ms),
        settle_ms=settle_ms,
        heal_ms=heal_ms,
    )


def _draw_steered(
    plan: WorldPlan, seed: int, *, edges: bool, start_ms: int, end_ms: int
) -> tuple[WorldPlan, tuple[PlanMoment, ...]]:
    """``plan`` with clients that collect, where plans say what is kept, and these plans."""
    wants = dict[BrokerId, frozenset[str]]()
    for each in plan.subscribers:
        filters = {filter for filter, _ in each.filters}
        wants[each.broker] = wants.get(each.broker, frozenset()) | filters
    drawn = replace(plan, filters=wants)
    dice = random.Random(f"plans {seed}")
    plans = draw_plans(dice, drawn, TOPICS, start_ms=start_ms, end_ms=end_ms)
    if not edges:
        return plan, plans
    hubs = dice.sample(plan.ids, min(2, len(plan.ids)))
    collectors = [_collector(dice, hub, plan.subscribers[0].start_ms) for hub in hubs]
    if dice.random() < 0.5:  # wants just what a hub collects
        other = replace(collectors[0], id="not-a-collector", broker=dice.choice(plan.ids))
        collectors.append(replace(other, filters=other.filters[:1], persistent=True))
    collected = {filter for each in collectors for filter, _ in each.filters}
    plans = with_edges(dice, plans, hubs, sorted(collected.union(pool_of(drawn))))
    everyone = (*plan.subscribers, *collectors)
    return replace(plan, hubs=frozenset(hubs), subscribers=everyone), plans


UNHURT_AT_HUBS = {FaultKind.BROKER_CRASH, FaultKind.STATE_LOST, FaultKind.DEATH}
"""What a hub's agents outlive, or lose their memory by, or what ends the way to its leaves."""

RETURN_AFTER_MS = (0, 1_000, 1_000, 4_000)
HUB_DEATHS_MAX = 2
HUB_DEATH_MS = (200, 8_000)
BURST_BEFORE_MS = (0, 1_000)
TROUBLED_MS = (100, 6_000)
TROUBLES = (FaultKind.CUT, FaultKind.SILENT, FaultKind.CLOG)
"""Of a link of a hub, before it dies."""


def _draw_hubs(seed: int, how: Manner) -> Story:
    """The story of ``seed`` with hubs and leaves: one to three hubs, up to three leaves each.

    Most leaves have a second hub in reserve where there is one, and hubs die for a while.
    ``areas``: instead a mesh of hubs above up to three others, and a leaf at most at each.
    """
    name = "areas" if how.areas else "hubs"
    rng = random.Random(f"{name} {seed}")
    homes, links, ports = draw_areas(rng) if how.areas else draw_ports(rng)
    ids = sorted([*homes, *(port.id for port in ports)])
    plan = _draw_plan(rng, ids, links, homes)
    leaves = frozenset(port.leaf for port in ports) | {port.id for port in ports}
    roaming = roaming_in(ports)
    settle_ms = 6_000 + 3 * max(each.sys_interval_ms for each in plan.brokers.values())
    how = Manner(faulty=how.faulty, areas=how.areas, outbound=rng.random() < 0.5)
    plan = how.applied_to(plan, seed=seed, from_ms=0, until_ms=0)
    plan = replace(plan, shortest=leaves, roaming=roaming, ports=ports)
    heal_ms = settle_ms + FAULTY_MS
    spell = {"start_ms": settle_ms, "end_ms": heal_ms}
    drawn = draw_faults(rng, ids=homes, links=links, count=rng.randint(0, 5), **spell)
    hubs = {port.hub for port in ports}
    clients = [each.id for each in plan.subscribers]
    beside = [port.id for port in ports]
    at = [*homes, *beside]
    edge = draw_edge_faults(rng, ids=at, clients=clients, count=rng.randint(0, 4), **spell)
    crash = FaultKind.CRASH_BETWEEN_WRITES
    at_edge = [each for each in edge if each.node not in {*hubs, *beside} or each.kind is crash]
    faults = [each for each in drawn if each.node not in hubs or each.kind not in UNHURT_AT_HUBS]
    homes_of_two = {port.hub for port in ports if port.leaf in roaming}
    publications = list(_draw_publications(rng, homes, settle_ms, heal_ms))
    for _ in range(rng.randint(0, HUB_DEATHS_MAX) if homes_of_two else 0):
        hub = rng.choice(sorted(homes_of_two))
        around = [link for link in links if hub in link]
        around += [(port.leaf, port.id) for port in ports if port.hub == hub]
        death = _draw_hub_death(rng, hub, around, settle_ms, heal_ms)
        faults += death
        near = sorted({port.leaf for port in ports if port.hub == hub})
        publications += _draw_bursts(rng, plan, [*near, *homes], death[-1].at_ms)
    changes = _draw_changes(rng, plan, settle_ms, heal_ms, counts=(1, 4))
    return Story(
        kind=Kind.MESSAGES,
        seed=seed,
        topology=name,
        plan=replace(
            plan,
            return_after_ms=rng.choice(RETURN_AFTER_MS) if roaming else 0,
            hub_filters_max=rng.choice(FILTERS_MAX),
        ),
        faults=in_time((*faults, *at_edge)) if how.faulty else (),
        changes=changes,
        publications=tuple(sorted(publications, key=lambda item: item.at_ms)),
        settle_ms=settle_ms,
        heal_ms=heal_ms,
    )


def _draw_hub_death(
    rng: random.Random, hub: BrokerId, links: list[Link], start_ms: int, end_ms: int
) -> list[Fault]:
    """A hub's machine is gone for a while; at times it was in trouble just before."""
    at_ms = rng.randint(start_ms, end_ms - 1)
    until_ms = min(end_ms, at_ms + rng.randint(*HUB_DEATH_MS))
    death = Fault(FaultKind.HOST_CRASH, at_ms, until_ms, node=hub)
    kind = rng.choice((None, None, FaultKind.AGENT_PAUSE, *TROUBLES))
    since_ms = max(start_ms, at_ms - rng.randint(*TROUBLED_MS))
    if kind is None:
        return [death]
    if kind is FaultKind.AGENT_PAUSE:
        return [Fault(kind, since_ms, until_ms, node=hub), death]
    return [Fault(kind, since_ms, until_ms, links=(rng.choice(links),)), death]


def _draw_bursts(
    rng: random.Random, plan: WorldPlan, ids: list[BrokerId], death_ms: int
) -> list[Publication]:
    """Much is under way to somebody when a hub dies."""
    wanted = {filter for each in plan.subscribers for filter, _ in each.filters}
    topics = [topic for topic in TOPICS if any(topic_matches(f, topic) for f in wanted)]
    return [
        Publication(
            at_ms=death_ms - rng.randint(*BURST_BEFORE_MS),
            publisher=f"p1-{id}",
            node=id,
            topic=rng.choice(topics or TOPICS),
            qos=1,
            count=rng.choice((10, 40)),
            gap_ms=rng.choice((1, 10, 50)),
        )
        for id in rng.choices(ids, k=3)
    ]


def _draw_plan(
    rng: random.Random,
    ids: list[BrokerId],
    links: list[Link],
    homes: list[BrokerId] | None = None,
) -> WorldPlan:
    """``homes``: brokers with clients, if these are not all of ``ids``."""
    homes = homes or ids
    slowest_ms = rng.choice((1, 5, 20, 100))
    rough = rng.random()
    plan = WorldPlan(
        ids=tuple(ids),
        links=tuple(draw_link(rng, link, slowest_ms) for link in links),
        parameters=Parameters(
            redundancy=rng.randint(1, 3),
            solicit_timeout_ms=Millis(max(500, 4 * slowest_ms * len(ids))),
        ),
        reconnect_ms_max=rng.choice((500, 1_000, 5_000)),
        start_ms_max=START_MS_MAX,
        clock_offset_ms_max=rng.choice((0, 1_000_000)),
        loss=rng.choice((0.01, 0.05, 0.3)) if rough < 0.2 else 0.0,
        duplication=rng.choice((0.01, 0.1, 0.5)) if 0.1 < rough < 0.3 else 0.0,
    )
    brokers = {id: _draw_broker(rng) for id in ids}
    pool = rng.sample(FILTERS, rng.choice((1, 2, 3, 5)))
    start_ms = 0 if rng.random() < 0.2 else START_MS_MAX + 1_000
    awkward = list(AWKWARD_IDS) if rng.random() < 0.1 else []
    subscribers = []
    for at in range(rng.randint(2, 2 + len(homes))):
        client_id = awkward.pop() if awkward else f"s{at}"
        subscriber = _draw_subscriber(rng, client_id, homes, pool)
        subscribers.append(replace(subscriber, start_ms=start_ms))
    records_max = rng.choice((5, 20)) if rng.random() < 0.1 else RECORDS_MAX
    return replace(
        plan, brokers=brokers, subscribers=tuple(subscribers), log_records_max=records_max
    )


def _draw_broker(rng: random.Random) -> BrokerPlan:
    return BrokerPlan(
        queued_max=rng.choice((1_000, 1_000, 1_000, 30)),
        persistent=rng.random() < 0.4,
        autosave_ms=rng.choice((1_000, 5_000, 1_800_000)),
        sys_interval_ms=rng.choice((1_000, 1_000, 2_000, 10_000)),
    )


def _draw_subscriber(
    rng: random.Random, id: str, ids: list[BrokerId], pool: list[str]
) -> SubscriberPlan:
    protocol = rng.choice((4, 4, 5))
    count = 1 if protocol == 5 else rng.randint(1, min(3, len(pool)))
    qos = rng.choice((0, 1, 1, 1))
    return SubscriberPlan(
        id=id,
        broker=rng.choice(ids),
        filters=tuple((filter, qos) for filter in rng.sample(pool, count)),
        persistent=rng.random() < 0.75,
        protocol=protocol,
    )


def _collector(rng: random.Random, hub: BrokerId, start_ms: int) -> SubscriberPlan:
    filters = tuple((filter, 1) for filter in sorted(draw_collected(rng)))
    return SubscriberPlan(
        id=f"collector-{hub}",
        broker=hub,
        filters=filters,
        persistent=rng.random() < 0.75,
        protocol=4,
        start_ms=start_ms,
    )


def _draw_changes(
    rng: random.Random,
    plan: WorldPlan,
    start_ms: int,
    end_ms: int,
    *,
    counts: tuple[int, ...] = (0, 0, 1, 3),
) -> tuple[Resubscription, ...]:
    changes = []
    for _ in range(rng.choice(counts)):
        client = rng.choice(plan.subscribers)
        filters = ((rng.choice(FILTERS), 1),)
        changes.append(Resubscription(rng.randint(start_ms, end_ms), client.id, filters))
    return tuple(sorted(changes, key=lambda change: change.at_ms))


def _draw_publications(
    rng: random.Random, ids: list[BrokerId], start_ms: int, end_ms: int
) -> tuple[Publication, ...]:
    publications = [
        Publication(
            at_ms=rng.randint(start_ms, end_ms),
            publisher=f"p{rng.randint(1, 3)}-{id}",
            node=id,
            topic=rng.choice(TOPICS),
            qos=rng.choice((0, 1, 1, 1)),
            count=rng.choice((1, 1, 3, 10, 40)),
            gap_ms=rng.choice((0, 1, 10, 200)),
        )
        for _ in range(rng.choice((5, 10, 20)))
        for id in (rng.choice(ids),)
    ]
    return tuple(sorted(publications, key=lambda item: item.at_ms))
