"""What there is in a world before the first event: brokers, links, and what they are called.

Which brokers use which routing is drawn beside the story, so that one seed tells the same story
under each strategy. ``mixed`` is a federation on its way from one to the other: each broker asks in
its own manner. So is what links cost: ``delay`` makes delays of its own, which change while the
story lasts, and lets agents measure them.
"""

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from federator.protocol.controller.failover import FailoverParameters
from federator.protocol.events import StatusChanged
from federator.protocol.messages.session_records import BrokerRecord
from federator.protocol.parameters import LinkCost, Parameters, Strategy
from federator.protocol.topology.parameters import TopologyParameters
from federator.protocol.types import BrokerId, Cost, Millis

MIXED: Final = "mixed"
STRATEGIES: Final = (*(strategy.value for strategy in Strategy), MIXED)

RECORDS_MAX: Final = 1_000_000

DELAYS_MS: Final = (1, 40)
"""One way, where links cost what they take."""
DELAY_CHANGES_MAX: Final = 2
"""Of each link."""

Link = tuple[BrokerId, BrokerId]  # the two ends of a link, the smaller id first


def link_of(one: BrokerId, other: BrokerId) -> Link:
    return (one, other) if one < other else (other, one)


@dataclass(frozen=True, slots=True)
class LinkPlan:
    """A link, as its operators set it up."""

    a: BrokerId
    b: BrokerId
    cost: Cost | None = Cost(1)  # ``None``: measured
    # The ends that name the other in their configuration; the other is dialled back.
    configured: tuple[BrokerId, ...] = ()
    # ends that name the other by an address it does not advertise.
    aliases: tuple[BrokerId, ...] = ()
    # The only end that can dial; the other one speaks to it in an outbox.
    dialler: BrokerId | None = None
    ids_known: bool = True  # the configured ends also give the other's id
    delay_ms_min: int = 5
    delay_ms_max: int = 5


@dataclass(frozen=True, slots=True)
class BrokerPlan:
    """How a broker is configured."""

    queued_max: int = 1_000  # messages that wait for one client beyond those in flight
    persistent: bool = False  # it saves its sessions
    autosave_ms: int = 1_800_000  # how often, while it runs; an orderly stop saves too
    sys_interval_ms: int = 10_000  # between two publications of its numbers
    logs: bool = True  # it says what its clients do


@dataclass(frozen=True, slots=True)
class SubscriberPlan:
    """A client that subscribes."""

    id: str
    broker: BrokerId
    filters: tuple[tuple[str, int], ...]  # with the QoS it asks for
    persistent: bool = True  # its session outlives its connection
    protocol: int = 4  # 4 (3.1.1) or 5; one of MQTT 5 has one filter, or would get more copies
    start_ms: int = 0  # when it connects first: before the agents listen, or after


@dataclass(frozen=True, slots=True)
class Port:
    """Where a leaf hangs: an agent beside its hub's broker."""

    id: BrokerId
    hub: BrokerId
    leaf: BrokerId


Named = tuple[str, BrokerId, LinkPlan]
"""A neighbour as an operator names it: where it is, who that is, and what is said of the link."""


HERE = StatusChanged(BrokerRecord())
"""With which an agent begins to say something of its broker."""


@dataclass(frozen=True, slots=True)
class DelayChange:
    """From ``at_ms`` the link between ``a`` and ``b`` takes ``delay_ms``, one way."""

    at_ms: int
    a: BrokerId
    b: BrokerId
    delay_ms: int


@dataclass(frozen=True, slots=True)
class WorldPlan:
    """Everything that is there before the first event."""

    ids: tuple[BrokerId, ...]
    links: tuple[LinkPlan, ...]
    filters: Mapping[BrokerId, frozenset[str]] = field(default_factory=dict)
    priorities: Mapping[BrokerId, int] = field(default_factory=dict)
    parameters: Parameters = field(default_factory=Parameters)
    gaps_ms: Mapping[BrokerId, Millis] = field(default_factory=dict)  # other ``core_ann_gap_ms``
    shortest: frozenset[BrokerId] = frozenset()  # those under shortest-path routing
    reconnect_ms_max: int = 5_000
    start_ms_max: int = 0
    clock_offset_ms_max: int = 0
    loss: float = 0.0
    duplication: float = 0.0
    delay_changes: tuple[DelayChange, ...] = ()
    failover: FailoverParameters | None = None
    arranging: TopologyParameters | None = None  # of agents that arrange their links
    hubs: frozenset[BrokerId] = frozenset()  # those that plans may have collect
    # Where leaves hang that have two hubs, the preferred place first; they pass nothing on.
    roaming: Mapping[BrokerId, tuple[BrokerId, ...]] = field(default_factory=dict)
    # Brokers with sessions and real clients; without them clients are imagined.
    brokers: Mapping[BrokerId, BrokerPlan] = field(default_factory=dict)
    subscribers: tuple[SubscriberPlan, ...] = ()
    log_records_max: int = RECORDS_MAX  # frames that each agent's log has room for
    ports: tuple[Port, ...] = ()  # where leaves hang, if any
    hub_filters_max: int = 3_000
    return_after_ms: int = 0  # of leaves that have two hubs
    turn_ms: int = 0  # for which a hub gathers what its sides want of each other

    @property
    def beside(self) -> dict[BrokerId, tuple[BrokerId, ...]]:
        """The ports at each hub: agents in its agent's process."""
        beside: dict[BrokerId, tuple[BrokerId, ...]] = {}
        for port in self.ports:
            beside[port.hub] = (*beside.get(port.hub, ()), port.id)
        return beside

    @property
    def delay_ms_max(self) -> int:
        """Of the slowest link, at its slowest."""
        delays = [link.delay_ms_max for link in self.links]
        return max((*delays, *(change.delay_ms for change in self.delay_changes)), default=0)

    def parameters_of(self, id: BrokerId) -> Parameters:
        strategy = Strategy.SHORTEST_PATH if id in self.shortest else Strategy.MESH
        is_port = any(id in ports for ports in self.roaming.values())
        passes = id not in self.roaming
        return replace(
            self.parameters,
            strategy=strategy,
            transit=passes,
            serves_leaf=is_port,
            core_ann_gap_ms=self.gaps_ms.get(id, self.parameters.core_ann_gap_ms),
        )

    def are_strangers(self, one: BrokerId, other: BrokerId) -> bool:
        """Whether only a leaf stands between them, and so they hear nothing of each other."""
        return one != other and any({one, other} <= {*ports} for ports in self.roaming.values())


def under(strategy: str, plan: WorldPlan, *, seed: int) -> WorldPlan:
    """``plan`` with its brokers under ``strategy``, one of ``STRATEGIES``."""
    shortest: Iterable[BrokerId] = () if strategy == Strategy.MESH else plan.ids
    if strategy == MIXED:
        rng = random.Random(f"strategies {seed}")
        shortest = (id for id in sorted(plan.ids) if rng.random() < 0.5)
    return replace(plan, shortest=frozenset(shortest))


def dialled_out(plan: WorldPlan, *, seed: int) -> WorldPlan:
    """``plan`` with many links that only one end can dial."""
    rng = random.Random(f"dialling {seed}")
    links = []
    for link in plan.links:
        dialler = rng.choice((None, link.a, link.b))
        if dialler is not None:
            aliases = tuple(end for end in link.aliases if end == dialler)
            link = replace(link, dialler=dialler, configured=(dialler,), aliases=aliases)
        links.append(link)
    return replace(plan, links=tuple(links))


def costing_delay(plan: WorldPlan, *, from_ms: int, until_ms: int, seed: int) -> WorldPlan:
    """``plan`` with links that cost their delay, each one of its own, which may change meanwhile.

    A relay waits for the cheapest copy as long as that may take, so that announcements find the
    shortest paths.
    """
    rng = random.Random(f"delays {seed}")
    links = []
    for link in plan.links:
        delay_ms = rng.randint(*DELAYS_MS)
        links.append(replace(link, cost=None, delay_ms_min=delay_ms, delay_ms_max=delay_ms))
    changes = [
        DelayChange(rng.randint(from_ms, until_ms), link.a, link.b, rng.randint(*DELAYS_MS))
        for link in links
        for _ in range(rng.randint(0, DELAY_CHANGES_MAX))
    ]
    crossing_ms = DELAYS_MS[1] * len(plan.ids)
    parameters = replace(
        plan.parameters,
        link_cost=LinkCost.DELAY,
        improvement_hold_ms=Millis(crossing_ms),
        solicit_timeout_ms=Millis(max(plan.parameters.solicit_timeout_ms, 4 * crossing_ms)),
    )
    ordered = tuple(sorted(changes, key=lambda change: change.at_ms))
    return replace(plan, links=tuple(links), delay_changes=ordered, parameters=parameters)


def address_of(id: BrokerId) -> str:
    return f"mqtt://b{id}"


def alias_of(id: BrokerId) -> str:
    return f"mqtt://alias-{id}"
