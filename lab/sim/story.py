"""A story: a federation, its clients, what goes wrong and when, drawn before the first event.

It is plain data, so it can be printed, written to a file, told again, and told with a part left
out. Draws are beside the kinds of stories; ``campaign`` tells each.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from enum import StrEnum

import msgspec

from federator.errors import DecodeError
from federator.protocol.messages.session_records import FlowRow
from federator.protocol.messages.steering import Tree
from federator.protocol.types import BrokerId, Cost
from lab.sim.plan import Link, WorldPlan


class Kind(StrEnum):
    """What a story is about, and so how it is told."""

    ROUTES = "routes"  # announcements and meshes, with imagined clients
    MESSAGES = "messages"  # who must get what, with real clients
    FAILOVER = "failover"
    JOINING = "joining"
    ATTACK = "attack"  # as MESSAGES, signed


class FaultKind(StrEnum):
    """What goes wrong; which did is counted under these names."""

    LINK_RESET = "link_reset"
    CUT = "cut"
    CUT_ONE_WAY = "cut_one_way"
    SILENT = "silent"
    SILENT_ONE_WAY = "silent_one_way"
    CLOG = "clogged"
    BROKER_CRASH = "broker_crash"
    AGENT_CRASH = "agent_crash"
    AGENT_LEAVE = "agent_leave"
    AGENT_PAUSE = "agent_pause"
    STATE_LOST = "state_lost"
    HOST_CRASH = "host_crash"
    SPLIT = "split"
    DEATH = "death"
    # With real clients:
    CLIENT_AWAY = "client_away"
    SLOW_CONSUMER = "slow_consumer"
    BROKER_RESTART = "broker_restart"
    CLOCK_JUMP = "clock_jump"
    DISK_FULL = "disk_full"
    SUBSCRIPTION_STORM = "subscription_storm"
    CRASH_BETWEEN_WRITES = "crash_between_writes"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong, from ``at_ms`` to ``until_ms``, at a node, links or a client."""

    kind: FaultKind
    at_ms: int
    until_ms: int
    node: BrokerId | None = None
    links: tuple[Link, ...] = ()  # one, or all links between two halves
    client: str | None = None
    steps: int = 0  # writes after which the agent is killed


@dataclass(frozen=True, slots=True)
class Resubscription:
    """From ``at_ms`` a client wants ``filters``, or all imagined clients of a broker do."""

    at_ms: int
    client: str | BrokerId
    filters: tuple[tuple[str, int], ...]  # with the QoS


@dataclass(frozen=True, slots=True)
class Publication:
    """``count`` publications of one client of ``node``, ``gap_ms`` apart."""

    at_ms: int
    node: BrokerId
    topic: str
    count: int
    publisher: str = ""  # empty: imagined
    qos: int = 0
    gap_ms: int = 0


@dataclass(frozen=True, slots=True)
class PlanMoment:
    """At ``at_ms`` a steerer tells ``to`` its plan number ``number``."""

    at_ms: int
    steerer: str
    number: int
    valid_ms: int
    to: tuple[BrokerId, ...]
    trees: tuple[Tree, ...]
    hub: BrokerId | None = None  # which collects
    collects: tuple[str, ...] = ()
    policy: str = ""  # by which the others keep


@dataclass(frozen=True, slots=True)
class Reload:
    """From ``at_ms`` to ``until_ms`` the operator of ``node`` configures a link otherwise.

    ``cost``: what the link to ``target`` costs; ``None``: ``target`` is not named.
    """

    at_ms: int
    until_ms: int
    node: BrokerId
    target: BrokerId
    cost: Cost | None


@dataclass(frozen=True, slots=True)
class DrainOrder:
    """At ``at_ms`` an operator tells the agent of ``at`` to drain ``broker``, or to end that."""

    at_ms: int
    at: BrokerId
    broker: BrokerId
    drain: bool


class MoveKind(StrEnum):
    """What an attacker does; each is counted under its name."""

    REPLAY = "replay"  # a stranger says again what it heard, here or at another broker
    BURST = "burst"  # the same with much of what it heard
    RELAY = "relay"  # a stranger says at once elsewhere what comes here, for a while
    MANGLE = "mangle"  # a stranger changes what it heard
    FORGE = "forge"  # a stranger speaks in an agent's name, without a seal
    FRAME = "frame"  # a member sends frames in another origin's name
    SOLICIT = "solicit"  # a member says that a core had a later epoch
    ANNOUNCE = "announce"  # a member passes on an announcement that its core never made
    WANT = "want"  # a member wants filters, and says another digest
    PAGE = "page"  # a member sends pages of lists that nobody asked for
    ASK = "ask"  # a member asks for what is nowhere


@dataclass(frozen=True, slots=True)
class Move:
    """At ``at_ms`` an attacker does this; ``dice`` says in which of many ways."""

    at_ms: int
    kind: MoveKind
    node: BrokerId  # at whose broker
    dice: int


@dataclass(frozen=True, slots=True)
class Blow:
    """What befalls brokers that join, so long after the act began; the first that is set."""

    at_ms: int
    start: BrokerId | None = None  # it starts, and joins by
    seeds: tuple[BrokerId, ...] = ()
    death: BrokerId | None = None  # it dies with its agent
    apart: frozenset[BrokerId] = frozenset()  # these are cut from the others; none: all is healed


@dataclass(frozen=True, slots=True)
class Story:
    """What a seed means."""

    kind: Kind
    seed: int
    topology: str
    plan: WorldPlan
    heal_ms: int = 0  # when every fault that ends has ended, and nothing changes any more
    settle_ms: int = 0  # by when the federation must stand; nothing goes wrong before
    faults: tuple[Fault, ...] = ()
    changes: tuple[Resubscription, ...] = ()
    publications: tuple[Publication, ...] = ()
    plans: tuple[PlanMoment, ...] = ()  # of steerers that know nothing
    reloads: tuple[Reload, ...] = ()
    drains: tuple[DrainOrder, ...] = ()
    moves: tuple[Move, ...] = ()
    # Each begins when the federation has settled after the one before; in order of time.
    acts: tuple[tuple[Blow, ...], ...] = ()
    followers: tuple[tuple[str, BrokerId, FlowRow], ...] = ()  # clients that follow the guide
    stays: bool = False  # watch the whole bound instead of stopping once converged
    member: BrokerId | None = None  # whose agent attacks; otherwise strangers do
    proven: bool = False  # origins sign what they make under custody

    @property
    def calm(self) -> bool:
        return not (self.faults or self.plan.loss)


PARTS = (
    "faults", "changes", "publications", "plans", "reloads", "drains", "moves", "acts", "followers",
)  # fmt: skip
"""What can be left out of a story, item by item."""


def simpler(story: Story) -> Iterator[Story]:
    """Stories with less noise, or fewer subscribers."""
    plan = story.plan
    if plan.loss:
        yield replace(story, plan=replace(plan, loss=0.0))
    if plan.duplication:
        yield replace(story, plan=replace(plan, duplication=0.0))
    for gone in plan.subscribers if len(plan.subscribers) > 1 else ():
        rest = tuple(each for each in plan.subscribers if each is not gone)
        yield replace(
            story,
            plan=replace(plan, subscribers=rest),
            faults=tuple(each for each in story.faults if each.client != gone.id),
            changes=tuple(each for each in story.changes if each.client != gone.id),
        )
    for at, item in enumerate(story.publications):
        if item.count > 1:
            fewer = replace(item, count=item.count // 2)
            before, after = story.publications[:at], story.publications[at + 1 :]
            yield replace(story, publications=(*before, fewer, *after))


def encode(story: Story) -> bytes:
    return msgspec.json.format(msgspec.json.encode(story), indent=1)


def decode(content: bytes) -> Story:
    """The story that ``encode`` wrote. Raises ``DecodeError``: it is none."""
    try:
        return msgspec.json.decode(content, type=Story)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DecodeError(f"story: {error}") from error


def lines_of(story: Story) -> Iterator[str]:
    """What happens, for people, in the order of time."""
    plan = story.plan
    ends = [f"{link.a}-{link.b}" for link in plan.links]
    links = ", ".join(ends) if story.kind is not Kind.JOINING else "as they arrange them"
    yield f"{story.kind}: brokers {', '.join(map(str, plan.ids))}; links {links}"
    if plan.ports:
        ports = ", ".join(f"{port.leaf} at {port.hub} by {port.id}" for port in plan.ports)
        yield f"leaves {ports}"
    if plan.loss or plan.duplication:
        yield f"loss {plan.loss}, duplication {plan.duplication}"
    if story.moves:
        yield "strangers attack" if story.member is None else f"member {story.member} attacks"
    for client in plan.subscribers:
        how = "persistent" if client.persistent else "clean"
        wants = ", ".join(f"{filter} at QoS {qos}" for filter, qos in client.filters)
        yield f"client {client.id!r} ({how}) at {client.broker} wants {wants}"
    for number, act in enumerate(story.acts):
        for blow in act:
            yield f"act {number}, {blow.at_ms:>8} ms  {_said(blow)}"
    lists = (getattr(story, part) for part in PARTS if part not in ("acts", "followers"))
    events = [(item.at_ms, _said(item)) for items in lists for item in items]
    yield from (f"{at_ms:>8} ms  {what}" for at_ms, what in sorted(events))


def _said(item: object) -> str:
    """What an item of a story says besides its time, without what is as usual."""
    match item:
        case Fault(kind, _, until_ms, node, links, client, steps):
            where = client or node or ", ".join(f"{a}-{b}" for a, b in links)
            after = f" after {steps} writes" if steps else ""
            return f"{kind}{after} at {where} until {until_ms}"
        case Resubscription(_, client, filters):
            return f"client {client!r} wants {', '.join(filter for filter, _ in filters)} instead"
        case Publication(_, node, topic, count, publisher, qos, gap_ms):
            what = f"{publisher or node} publishes {topic} {count} times at QoS {qos}"
            return f"{what}, every {gap_ms} ms"
        case _:
            pass
    named = {field.name: getattr(item, field.name) for field in fields(item)}  # type: ignore[arg-type]
    said = [f"{name}={value}" for name, value in named.items() if name != "at_ms" and value]
    return f"{type(item).__name__} {' '.join(said)}"
