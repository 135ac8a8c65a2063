"""One seed's story with clients: a federation, who subscribes, who publishes, what goes wrong.

As with ``lab.sim.scenario`` everything is drawn before the first event and kept as data, so that a
story can be written to a file, told again, and told with a part left out.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec

from federator.errors import DecodeError
from federator.protocol.parameters import Parameters, Strategy
from federator.protocol.types import BrokerId, Millis
from lab.sim import topologies
from lab.sim.faults import Fault, FaultKind, draw_faults
from lab.sim.messages.hubs import FILTERS_MAX, draw_areas, draw_ports, roaming_in
from lab.sim.messages.mishaps import Mishap, MishapKind, draw_mishaps
from lab.sim.plan import (
    RECORDS_MAX,
    BrokerPlan,
    Link,
    SubscriberPlan,
    WorldPlan,
    costing_delay,
    dialled_out,
    under,
)
from lab.sim.scenario import FILTERS, TOPICS, draw_link, pool_of
from lab.sim.steering import PlanMoment, draw_collected, draw_plans, with_edges
from lab.sim.topics import topic_matches

PARTS = ("faults", "mishaps", "changes", "publications", "plans")
"""What can be left out of a story, item by item."""

NODES_MAX = 9
START_MS_MAX = 200
FAULTY_MS = 15_000
LONG_FAULTY_MS = 70_000
"""Now and then: longer than a log line, a session of the agent and any lifetime are kept."""

AWKWARD_IDS = ("sp", "sp 0 ace", "a b", "x 1 a/+")
"""Client ids that make log lines with several readings."""


@dataclass(frozen=True, slots=True)
class ClientPublication:
    """``count`` publications of one client, ``gap_ms`` apart."""

    at_ms: int
    publisher: str
    node: BrokerId
    topic: str
    qos: int
    count: int
    gap_ms: int


@dataclass(frozen=True, slots=True)
class Resubscription:
    """From ``at_ms`` a client wants ``filters``."""

    at_ms: int
    client: str
    filters: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class MessageStory:
    """What a seed means."""

    seed: int
    topology: str
    plan: WorldPlan
    faults: tuple[Fault, ...]
    mishaps: tuple[Mishap, ...]
    changes: tuple[Resubscription, ...]
    publications: tuple[ClientPublication, ...]
    settle_ms: int  # by when the federation must stand; nothing goes wrong before
    heal_ms: int  # when every fault that ends has ended
    plans: tuple[PlanMoment, ...] = ()  # of steerers that know nothing


def draw(
    seed: int,
    *,
    nodes: int | None = None,
    topology: str = topologies.ANY,
    faulty: bool = True,
    strategy: str = Strategy.MESH,
    steered: bool = False,
    edges: bool = False,
    by_delay: bool = False,
    outbound: bool = False,
) -> MessageStory:
    """The story of ``seed``, with so many brokers, or few, under one of ``STRATEGIES``.

    ``steered``: with plans, which with ``edges`` say what is kept there, too. ``by_delay``: links
    cost their delay, which changes. ``outbound``: many have one end that dials.
    """
    rng = random.Random(f"messages {seed} {nodes} {topology}")
    nodes = nodes or rng.choice((2, 3, 3, 4, 4, 5, 6, 7, NODES_MAX))
    name, raw_links = topologies.draw(topology, nodes, rng)
    ids = sorted(BrokerId(id) for id in range(1, nodes + 1))
    shuffled = rng.sample(ids, len(ids))
    links: list[Link] = [(shuffled[a], shuffled[b]) for a, b in raw_links]
    plan = _draw_plan(rng, ids, links)
    if not faulty:
        plan = replace(plan, loss=0.0, duplication=0.0)
    plan = under(strategy, plan, seed=seed)
    slowest_ms = max(each.sys_interval_ms for each in plan.brokers.values())
    settle_ms = 4_000 + 3 * slowest_ms
    heal_ms = settle_ms + (LONG_FAULTY_MS if rng.random() < 0.1 else FAULTY_MS)
    if by_delay:
        plan = costing_delay(plan, from_ms=settle_ms, until_ms=heal_ms, seed=seed)
    if outbound:
        plan = dialled_out(plan, seed=seed)
    spell = {"start_ms": settle_ms, "end_ms": heal_ms}
    clients = [each.id for each in plan.subscribers]
    faults: tuple[Fault, ...] = ()
    mishaps: tuple[Mishap, ...] = ()
    if faulty:
        faults = draw_faults(rng, ids=ids, links=links, count=rng.randint(0, 5), **spell)
        mishaps = draw_mishaps(rng, ids=ids, clients=clients, count=rng.randint(0, 4), **spell)
    plans: tuple[PlanMoment, ...] = ()
    if steered:
        wants = dict[BrokerId, frozenset[str]]()
        for each in plan.subscribers:
            filters = {filter for filter, _ in each.filters}
            wants[each.broker] = wants.get(each.broker, frozenset()) | filters
        drawn = replace(plan, filters=wants)
        dice = random.Random(f"plans {seed}")
        plans = draw_plans(dice, drawn, TOPICS, **spell)
        if edges:
            hubs = dice.sample(ids, min(2, len(ids)))
            start_ms = plan.subscribers[0].start_ms
            more = [_collector(dice, hub, start_ms) for hub in hubs]
            if dice.random() < 0.5:  # wants just what a hub collects
                other = replace(more[0], id="not-a-collector", broker=dice.choice(ids))
                more.append(replace(other, filters=other.filters[:1], persistent=True))
            everyone = (*plan.subscribers, *more)
            plan = replace(plan, hubs=frozenset(hubs), subscribers=everyone)
            collected = {filter for each in more for filter, _ in each.filters}
            plans = with_edges(dice, plans, hubs, sorted(collected.union(pool_of(drawn))))
    return MessageStory(
        seed=seed,
        plans=plans,
        topology=name,
        plan=plan,
        faults=faults,
        mishaps=mishaps,
        changes=_draw_changes(rng, plan, settle_ms, heal_ms),
        publications=_draw_publications(rng, ids, settle_ms, heal_ms),
        settle_ms=settle_ms,
        heal_ms=heal_ms,
    )


UNHURT_AT_HUBS = {FaultKind.BROKER_CRASH, FaultKind.STATE_LOST, FaultKind.DEATH}
"""What a hub's agents outlive, or lose their memory by, or what ends the way to its leaves."""

RETURN_AFTER_MS = (0, 1_000, 1_000, 4_000)
HUB_DEATHS_MAX = 2
HUB_DEATH_MS = (200, 8_000)
BURST_BEFORE_MS = (0, 1_000)
TROUBLED_MS = (100, 6_000)
TROUBLES = (FaultKind.CUT, FaultKind.SILENT, FaultKind.CLOG)
"""Of a link of a hub, before it dies."""


def draw_hubs(seed: int, *, faulty: bool = True, areas: bool = False) -> MessageStory:
    """The story of ``seed`` with hubs and leaves: one to three hubs, up to three leaves each.

    Most leaves have a second hub in reserve where there is one, and hubs die for a while.
    ``areas``: instead a mesh of hubs above up to three others, and a leaf at most at each.
    """
    rng = random.Random(f"{'areas' if areas else 'hubs'} {seed}")
    homes, links, ports = draw_areas(rng) if areas else draw_ports(rng)
    ids = sorted([*homes, *(port.id for port in ports)])
    plan = _draw_plan(rng, ids, links, homes)
    leaves = frozenset(port.leaf for port in ports) | {port.id for port in ports}
    roaming = roaming_in(ports)
    plan = replace(plan, shortest=leaves, roaming=roaming, ports=ports)
    if rng.random() < 0.5:
        plan = dialled_out(plan, seed=seed)
    if not faulty:
        plan = replace(plan, loss=0.0, duplication=0.0)
    slowest_ms = max(each.sys_interval_ms for each in plan.brokers.values())
    settle_ms = 6_000 + 3 * slowest_ms
    heal_ms = settle_ms + FAULTY_MS
    spell = {"start_ms": settle_ms, "end_ms": heal_ms}
    drawn = draw_faults(rng, ids=homes, links=links, count=rng.randint(0, 5), **spell)
    hubs = {port.hub for port in ports}
    clients = [each.id for each in plan.subscribers]
    beside = [port.id for port in ports]
    at = [*homes, *beside]
    unlucky = draw_mishaps(rng, ids=at, clients=clients, count=rng.randint(0, 4), **spell)
    crash = MishapKind.CRASH_BETWEEN_WRITES
    mishaps = [each for each in unlucky if each.node not in {*hubs, *beside} or each.kind is crash]
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
    faults.sort(key=lambda fault: fault.at_ms)
    changes = _draw_changes(rng, plan, settle_ms, heal_ms, counts=(1, 4))
    return MessageStory(
        seed=seed,
        topology="areas" if areas else "hubs",
        plan=replace(
            plan,
            return_after_ms=rng.choice(RETURN_AFTER_MS) if roaming else 0,
            hub_filters_max=rng.choice(FILTERS_MAX),
        ),
        faults=tuple(faults) if faulty else (),
        mishaps=tuple(mishaps) if faulty else (),
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
) -> list[ClientPublication]:
    """Much is under way to somebody when a hub dies."""
    wanted = {filter for each in plan.subscribers for filter, _ in each.filters}
    topics = [topic for topic in TOPICS if any(topic_matches(f, topic) for f in wanted)]
    return [
        ClientPublication(
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


def simpler(story: MessageStory) -> Iterator[MessageStory]:
    """Stories with less noise, or fewer subscribers."""
    plan = story.plan
    if plan.loss:
        yield replace(story, plan=replace(plan, loss=0.0))
    if plan.duplication:
        yield replace(story, plan=replace(plan, duplication=0.0))
    for gone in plan.subscribers:
        rest = tuple(each for each in plan.subscribers if each is not gone)
        if not rest:
            continue
        yield replace(
            story,
            plan=replace(plan, subscribers=rest),
            mishaps=tuple(each for each in story.mishaps if each.client != gone.id),
            changes=tuple(each for each in story.changes if each.client != gone.id),
        )
    for at, item in enumerate(story.publications):
        if item.count > 1:
            fewer = replace(item, count=item.count // 2)
            before, after = story.publications[:at], story.publications[at + 1 :]
            yield replace(story, publications=(*before, fewer, *after))


def encode(story: MessageStory) -> bytes:
    """The story as JSON, to be told again elsewhere."""
    return msgspec.json.format(msgspec.json.encode(story), indent=1)


def decode(content: bytes) -> MessageStory:
    """The story that ``encode`` wrote. Raises ``DecodeError``: it is none."""
    try:
        return msgspec.json.decode(content, type=MessageStory)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DecodeError(f"story: {error}") from error


def lines_of(story: MessageStory) -> Iterator[str]:
    """What happens, for people, in the order of time."""
    plan = story.plan
    links = ", ".join(f"{link.a}-{link.b}" for link in plan.links)
    yield f"brokers {', '.join(map(str, plan.ids))}; links {links}"
    if plan.loss or plan.duplication:
        yield f"loss {plan.loss}, duplication {plan.duplication}"
    for subscriber in plan.subscribers:
        kind = "persistent" if subscriber.persistent else "clean"
        wants = ", ".join(f"{filter} at QoS {qos}" for filter, qos in subscriber.filters)
        yield f"client {subscriber.id!r} ({kind}) at {subscriber.broker} wants {wants}"
    events: list[tuple[int, str]] = []
    for fault in story.faults:
        where = fault.node or ", ".join(f"{a}-{b}" for a, b in fault.links)
        events.append((fault.at_ms, f"{fault.kind.value} at {where} until {fault.until_ms}"))
    for mishap in story.mishaps:
        where = repr(mishap.client) if mishap.client else str(mishap.node)
        steps = f" after {mishap.steps} writes" if mishap.steps else ""
        what = f"{mishap.kind.value}{steps} at {where} until {mishap.until_ms}"
        events.append((mishap.at_ms, what))
    for change in story.changes:
        wants = ", ".join(filter for filter, _ in change.filters)
        events.append((change.at_ms, f"client {change.client!r} wants {wants} instead"))
    for item in story.publications:
        what = f"{item.publisher} publishes {item.topic} {item.count} times at QoS {item.qos}"
        events.append((item.at_ms, f"{what}, every {item.gap_ms} ms"))
    yield from (f"{at_ms:>8} ms  {what}" for at_ms, what in sorted(events))


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
) -> tuple[ClientPublication, ...]:
    publications = [
        ClientPublication(
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
