"""A whole federation in one thread, replayable from a seed.

The nodes and data planes are the daemon's own; only the clock, the network, the brokers and the
dice are ours. Every control message passes the real codec, every publication a real frame.

Source: design section 2; testing.md, "The simulator".
"""

import random
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from federator.errors import DecodeError
from federator.protocol import codec
from federator.protocol.controller.failover import FailoverParameters
from federator.protocol.effects import (
    CallOff,
    CallOffSeed,
    Dial,
    DialSeed,
    Effect,
    FilterRoute,
    HangUp,
    Measure,
    Notice,
    PublishGuide,
    ReachNeighbour,
    RememberBrokers,
    RenewEpoch,
    Send,
    SetDestination,
    SetDraining,
    SetRoute,
    StepBack,
    StepIn,
)
from federator.protocol.events import (
    DeadlineReached,
    Event,
    LeaveRequested,
    LocalBrokerDown,
    LocalBrokerUp,
    LocalFiltersChanged,
    Received,
)
from federator.protocol.messages import (
    DatagramOffer,
    Echo,
    Message,
    RepairRequest,
    RetainedLetter,
    RetainedRequest,
    Revoked,
    TraceEcho,
    Wave,
)
from federator.protocol.node import Identity, Node
from federator.protocol.parameters import Parameters, Strategy
from federator.protocol.types import BrokerId, Cost, Epoch, Millis
from federator.sim.agenda import Agenda
from federator.sim.agents import FIRST_EPOCH, INBOX_MAX, Agent, Disk
from federator.sim.data import DataPlane, Passage, publications_of
from federator.sim.network import Broker, Dialler, Path, link_of
from federator.sim.watcher import Watcher
from federator.sim.wires import BROKER_PATIENCE_MS, KEEP_ALIVE_MS, Wires

LOCAL_CONNECT_MS = 1
TRACE_EVENTS_MAX = 60


@dataclass(frozen=True, slots=True)
class LinkPlan:
    """A link, as its operators set it up.

    Attributes:
        configured: The ends that name the other in their configuration; the other is dialled back.
        aliases: The ends that name the other by another address than it advertises.
        ids_known: The configured ends also give the other's id.
    """

    a: BrokerId
    b: BrokerId
    cost: Cost = Cost(1)
    configured: tuple[BrokerId, ...] = ()
    aliases: tuple[BrokerId, ...] = ()
    ids_known: bool = True
    delay_ms_min: int = 5
    delay_ms_max: int = 5


@dataclass(frozen=True, slots=True)
class WorldPlan:
    """Everything that is there before the first event."""

    ids: tuple[BrokerId, ...]
    links: tuple[LinkPlan, ...]
    filters: Mapping[BrokerId, frozenset[str]] = field(default_factory=dict)
    priorities: Mapping[BrokerId, int] = field(default_factory=dict)
    parameters: Parameters = field(default_factory=Parameters)
    shortest: frozenset[BrokerId] = frozenset()  # those under shortest-path routing
    reconnect_ms_max: int = 5_000
    start_ms_max: int = 0
    clock_offset_ms_max: int = 0
    loss: float = 0.0
    duplication: float = 0.0
    failover: FailoverParameters | None = None


class World:
    """Brokers, agents and links under one simulated clock.

    Args:
        plan: What there is.
        seed: The only source of randomness.
        watcher: Told about everything; checks it.
        trace_max: Events remembered for the report of a violation.
    """

    def __init__(
        self,
        plan: WorldPlan,
        *,
        seed: int,
        watcher: Watcher | None = None,
        trace_max: int | None = TRACE_EVENTS_MAX,
    ) -> None:
        self.plan = plan
        self.agenda = Agenda()
        self.watcher = watcher or Watcher()
        self.trace: deque[tuple[Millis, BrokerId, object]] = deque(maxlen=trace_max)
        self.brokers = {id: Broker(id) for id in plan.ids}
        self.agents: dict[BrokerId, Agent] = {}
        self.disks = {id: Disk() for id in plan.ids}
        self.filters = {id: plan.filters.get(id, frozenset()) for id in plan.ids}
        self.agent_stops: Counter[BrokerId] = Counter()
        self.lives: Counter[BrokerId] = Counter()
        self.fired: Counter[str] = Counter()
        self.published = 0
        self.topics: dict[int, str] = {}
        self.origins: dict[int, BrokerId] = {}
        self.delivered: dict[int, Counter[BrokerId]] = {}
        self.paths: dict[tuple[BrokerId, BrokerId], Path] = {}
        self._rng = random.Random(f"world {seed}")
        self._configured: dict[BrokerId, list[tuple[str, BrokerId, LinkPlan]]] = {}
        self._costs = {link_of(link.a, link.b): link.cost for link in plan.links}
        self._address_book: dict[str, BrokerId] = {}
        self._lay_links()
        self.wires = Wires(
            self.agenda,
            random.Random(f"wires {seed}"),
            paths=self.paths,
            brokers=self.brokers,
            arrival=self.arrive,
            tell=self._tell,
            reconnect_ms_max=plan.reconnect_ms_max,
        )
        self.wires.fired = self.fired
        self.wires.loss = plan.loss
        self.wires.duplication = plan.duplication
        for id in plan.ids:
            self.agenda.at(self._rng.randint(0, plan.start_ms_max), self._start, id)

    @property
    def now_ms(self) -> Millis:
        """The simulated instant."""
        return self.agenda.now_ms

    def run_until(self, end_ms: int) -> None:
        """Let everything due by ``end_ms`` happen."""
        self.agenda.run_until(end_ms)

    # --- what clients do ---

    def set_filters(self, id: BrokerId, filters: frozenset[str]) -> None:
        """The clients of a broker now subscribe to ``filters``."""
        before = self.filters[id]
        self.filters[id] = filters
        agent = self.agents.get(id)
        if agent is not None and before != filters:
            self._tell(agent, LocalFiltersChanged(filters - before, before - filters))

    def publish(self, id: BrokerId, topic: str, count: int = 1) -> range:
        """A client of broker ``id`` publishes ``count`` times; the numbers of its publications."""
        first = self.published
        self.published += count
        numbers = range(first, self.published)
        for number in numbers:
            self.topics[number] = topic
            self.origins[number] = id
            self.delivered[number] = Counter()
        agent = self.agents.get(id)
        if agent is None or not agent.subscribed or agent.pauses:
            return numbers
        passage = agent.data.publish(topic, numbers)
        if passage is not None:
            self._forward(agent, passage)
        return numbers

    def arrive(self, id: BrokerId, kind: str, payload: bytes) -> None:
        """A message is published on the control or data topic ``kind`` of broker ``id``."""
        agent = self.agents.get(id)
        if agent is None or not agent.subscribed:
            return
        if agent.pauses and len(agent.inbox) >= INBOX_MAX:
            self.fired["queue_overflow"] += 1
        elif kind != "data":
            try:
                message = codec.decode(kind, payload)
            except DecodeError:
                self.fired["undecodable"] += 1
            else:
                self._hear(agent, message)
        elif agent.pauses:
            agent.inbox.append(payload)
        else:
            self._on_frame(agent, payload)

    # --- what befalls brokers and agents ---

    def stop_broker(self, id: BrokerId) -> None:
        """Kill the broker: everybody's connections to it are reset, its Wills are lost."""
        broker = self.brokers[id]
        broker.stops += 1
        if broker.stops > 1:
            return
        broker.sessions.clear()
        self._note(id, "broker stops")
        for agent in list(self.agents.values()):
            for connection, _ in list(agent.connections.values()):
                if connection.path.target == id:
                    self.wires.reset(agent, connection)
        local = self.agents.get(id)
        if local is not None:
            self.agenda.at(self.now_ms + LOCAL_CONNECT_MS, self._local_lost, local)

    def start_broker(self, id: BrokerId) -> None:
        """End one cause of the broker's absence."""
        broker = self.brokers[id]
        broker.stops -= 1
        if broker.stops == 0:
            broker.life += 1
            self._note(id, "broker starts")

    def stop_agent(self, id: BrokerId, *, graceful: bool = False) -> None:
        """Kill the agent, or let it leave with a bye."""
        self.agent_stops[id] += 1
        agent = self.agents.get(id)
        if self.agent_stops[id] > 1 or agent is None:
            return
        graceful = graceful and not agent.pauses
        self._note(id, "agent leaves" if graceful else "agent dies")
        if graceful:
            self._handle(agent, LeaveRequested())
        del self.agents[id]
        for connection, dialler in list(agent.connections.values()):
            dialler.wanted = False
            self.wires.close(agent, connection, graceful=graceful)
        for dialler in agent.diallers.values():
            dialler.wanted = False
        self.watcher.stopped(agent)

    def start_agent(self, id: BrokerId) -> None:
        """End one cause of the agent's absence."""
        self.agent_stops[id] -= 1
        if self.agent_stops[id] == 0:
            self._start(id)

    def forget(self, id: BrokerId) -> None:
        """Lose the agent's disk, and set its clock back: its next epoch was long ago."""
        self.disks[id] = Disk(Epoch(self._rng.randrange(FIRST_EPOCH)))

    def pause_agent(self, id: BrokerId) -> None:
        """Stop the agent's process as SIGSTOP does."""
        agent = self.agents.get(id)
        if agent is None:
            return
        agent.pauses += 1
        if agent.pauses > 1:
            return
        agent.pause_ticket += 1
        self._note(id, "agent pauses")
        self.agenda.at(
            self.now_ms + BROKER_PATIENCE_MS, self._patience_ends, agent, agent.pause_ticket
        )

    def resume_agent(self, id: BrokerId, life: int) -> None:
        """Let the agent that was paused in its ``life`` go on: first with what waited for it."""
        agent = self.agents.get(id)
        if agent is None or agent.life != life or not agent.pauses:
            return
        agent.pauses -= 1
        if agent.pauses:
            return
        agent.pause_ticket += 1
        self._note(id, "agent resumes")
        while agent.inbox and self.agents.get(id) is agent:
            waiting = agent.inbox.popleft()
            if isinstance(waiting, bytes):
                self._on_frame(agent, waiting)
            elif callable(waiting):
                waiting()
            else:
                self._handle(agent, waiting)
        self._wake(agent)

    # --- what befalls links ---

    def paths_of(self, a: BrokerId, b: BrokerId, *, both: bool) -> list[Path]:
        """The path from ``a`` to ``b``, and back."""
        return [self.paths[a, b], self.paths[b, a]] if both else [self.paths[a, b]]

    def reset(self, path: Path) -> None:
        """Reset every connection on ``path``."""
        agent = self.agents.get(path.owner)
        if agent is None:
            return
        for connection, _ in list(agent.connections.values()):
            if connection.path is path:
                self.wires.reset(agent, connection)

    def cut(self, path: Path) -> None:
        """Reset the connections and allow no new ones."""
        path.cuts += 1
        self.reset(path)

    def mend(self, path: Path) -> None:
        """End one cause of the cut."""
        path.cuts -= 1

    def silence(self, path: Path) -> None:
        """Let everything vanish, until a keep-alive runs out or the path speaks again."""
        path.silences += 1
        agent = self.agents.get(path.owner)
        if agent is None:
            return
        for connection, dialler in list(agent.connections.values()):
            if connection.path is path and not connection.lost:
                connection.lost = True
                now_ms = self.now_ms
                wires = self.wires
                self.agenda.at(now_ms + KEEP_ALIVE_MS, wires.ended_here, agent, connection)
                self.agenda.at(
                    now_ms + BROKER_PATIENCE_MS, wires.give_up_there, connection, dialler.address
                )

    def unsilence(self, path: Path) -> None:
        """New connections work again; the old ones are answered with a reset."""
        path.silences -= 1
        agent = self.agents.get(path.owner)
        if agent is None or path.silences:
            return
        for connection, _ in list(agent.connections.values()):
            if connection.path is path and connection.lost:
                self.agenda.at(self.now_ms + 1, self.wires.ended_here, agent, connection)

    def clog(self, path: Path, until_ms: int) -> None:
        """Hold back what is sent until ``until_ms``."""
        path.clogged_until_ms = max(path.clogged_until_ms, until_ms)

    # --- inside: agents' lives ---

    def _lay_links(self) -> None:
        for id in self.plan.ids:
            self._configured[id] = []
            self._address_book[address_of(id)] = id
            self._address_book[alias_of(id)] = id
        for link in self.plan.links:
            for owner, target in ((link.a, link.b), (link.b, link.a)):
                self.paths[owner, target] = Path(
                    owner, target, link.delay_ms_min, link.delay_ms_max
                )
                if owner in link.configured or not link.configured:
                    address = alias_of(target) if owner in link.aliases else address_of(target)
                    self._configured[owner].append((address, target, link))

    def _start(self, id: BrokerId) -> None:
        if self.agent_stops[id] or id in self.agents:
            return
        disk = self.disks[id]
        disk.epoch = Epoch(disk.epoch + 1)
        self.lives[id] += 1
        agent = Agent(
            id=id,
            life=self.lives[id],
            node=Node(
                Identity(id, disk.epoch, address_of(id), self.plan.priorities.get(id, 0)),
                self._parameters_of(id),
                self.plan.failover,
            ),
            data=DataPlane(id, disk.epoch),
            clock_offset_ms=self._rng.randint(0, self.plan.clock_offset_ms_max),
        )
        self.agents[id] = agent
        self._note(id, f"agent starts, life {agent.life}, epoch {disk.epoch}")
        self.watcher.started(agent)
        if self.filters[id]:
            self._handle(agent, LocalFiltersChanged(self.filters[id], frozenset()))
        self.agenda.at(self.now_ms + LOCAL_CONNECT_MS, self._local_attempt, agent)
        for address, target, link in self._configured[id]:
            expected = target if link.ids_known else None
            dialler = Dialler(address, target, expected, link.cost)
            agent.diallers[address] = dialler
            self.wires.dial(agent, dialler)

    def _parameters_of(self, id: BrokerId) -> Parameters:
        strategy = Strategy.SHORTEST_PATH if id in self.plan.shortest else Strategy.MESH
        return replace(self.plan.parameters, strategy=strategy)

    def _local_attempt(self, agent: Agent) -> None:
        if self.agents.get(agent.id) is not agent or agent.subscribed:
            return
        if agent.pauses or not self.brokers[agent.id].running:
            agent.local_failures += 1
            wait_ms = self.wires.back_off_ms(agent.local_failures)
            self.agenda.at(self.now_ms + wait_ms, self._local_attempt, agent)
            return
        agent.local_failures = 0
        agent.subscribed = True
        self._tell(agent, LocalBrokerUp())

    def _local_lost(self, agent: Agent) -> None:
        if self.agents.get(agent.id) is not agent or not agent.subscribed:
            return
        agent.subscribed = False
        self._tell(agent, LocalBrokerDown())
        self.agenda.at(self.now_ms + LOCAL_CONNECT_MS, self._local_attempt, agent)

    def _patience_ends(self, agent: Agent, ticket: int) -> None:
        if self.agents.get(agent.id) is not agent or agent.pause_ticket != ticket:
            return
        self.fired["long_pause"] += 1
        for connection, dialler in list(agent.connections.values()):
            self.wires.give_up_there(connection, dialler.address)
            self.wires.ended_here(agent, connection)
        self._local_lost(agent)

    # --- inside: events and effects ---

    def _tell(self, agent: Agent, event: Event) -> None:
        if self.agents.get(agent.id) is not agent:
            return
        if agent.pauses:
            agent.inbox.append(event)
        else:
            self._handle(agent, event)

    def _handle(self, agent: Agent, event: Event) -> None:
        self.trace.append((self.agenda.now_ms, agent.id, event))
        now_ms = Millis(self.agenda.now_ms + agent.clock_offset_ms)
        effects = agent.node.handle(event, now_ms=now_ms)
        if effects:
            self._perform(agent, effects)
        self._arm(agent)
        self.watcher.handled(agent, event, effects)

    def _perform(self, agent: Agent, effects: Iterable[Effect]) -> None:
        routes_changed = False
        moved: dict[BrokerId, BrokerId | None] = {}
        encoded: tuple[object, bytes] = (None, b"")
        for effect in effects:
            match effect:
                case Send(conn, message):
                    held = agent.connections.get(conn)
                    if held is None:
                        continue
                    if message is not encoded[0]:
                        encoded = (message, codec.encode(message))
                    self.watcher.sent(agent, held[0].path.target, effect)
                    self.wires.transmit(held[0], codec.kind_of(message), encoded[1])
                case SetRoute(filter, route, lost):
                    self._set_route(agent, filter, route, lost)
                    routes_changed = True
                case SetDestination(broker, next_hop):
                    moved[broker] = next_hop
                case ReachNeighbour(neighbour, reached):
                    if reached is None:
                        agent.reach.pop(neighbour, None)
                    else:
                        agent.reach[neighbour] = reached
                    self._reach_changed(agent, neighbour)
                case Dial(_, address):
                    self._dial_back(agent, address)
                case HangUp(conn):
                    self._hang_up(agent, conn)
                case RenewEpoch(epoch):
                    self.fired["renew_epoch"] += 1
                    self.disks[agent.id].epoch = Epoch(epoch)
                    agent.data.renew(Epoch(epoch))
                case PublishGuide() | StepIn() | StepBack() | SetDraining():
                    self._on_failover(agent, effect)
                case CallOff() | DialSeed() | CallOffSeed() | Measure() | RememberBrokers():
                    self._on_arrangement(agent, effect)
                case Notice(name):
                    self.fired[f"notice {name}"] += 1
        if moved:
            self._set_destinations(agent, moved)
        if routes_changed:
            self._cover_changed(agent)

    def _set_route(self, agent: Agent, filter: str, route: FilterRoute | None, lost: bool) -> None:
        agent.data.forwarder.set_route(filter, route)

    def _on_failover(
        self, agent: Agent, effect: PublishGuide | StepIn | StepBack | SetDraining
    ) -> None:
        self.fired[f"failover {type(effect).__name__}"] += 1

    def _on_arrangement(
        self, agent: Agent, effect: CallOff | DialSeed | CallOffSeed | Measure | RememberBrokers
    ) -> None:
        raise AssertionError("the links of this world are those of its plan")

    def _set_destinations(
        self, agent: Agent, next_hops: Mapping[BrokerId, BrokerId | None]
    ) -> None:
        for broker, next_hop in next_hops.items():
            agent.data.forwarder.set_destination(broker, next_hop)

    def _reach_changed(self, agent: Agent, neighbour: BrokerId) -> None:
        self.watcher.link_changed(agent, neighbour)

    def _hear(self, agent: Agent, message: Message) -> None:
        # Neither custody nor retained values, keys, traces or datagrams are in this world.
        beside = (
            RepairRequest
            | RetainedRequest
            | RetainedLetter
            | Wave
            | Echo
            | Revoked
            | TraceEcho
            | DatagramOffer
        )
        if not isinstance(message, beside):
            self._tell(agent, Received(message))

    def _cover_changed(self, agent: Agent) -> None:
        agent.data.routes_changed()

    def _dial_back(self, agent: Agent, address: str) -> None:
        self.fired["dial_back"] += 1
        target = self._address_book[address]
        if address in agent.diallers and agent.diallers[address].wanted:
            return
        cost = self._costs[link_of(agent.id, target)]
        dialler = Dialler(address, target, target, cost)
        agent.diallers[address] = dialler
        self.wires.dial(agent, dialler)

    def _hang_up(self, agent: Agent, conn: int) -> None:
        self.fired["hang_up"] += 1
        for connection, dialler in list(agent.connections.values()):
            if connection.id == conn:
                dialler.wanted = False
                self.wires.close(agent, connection, graceful=True)

    def _arm(self, agent: Agent) -> None:
        deadline_ms = agent.node.next_deadline_ms()
        if deadline_ms is None:
            return
        when_ms = max(self.agenda.now_ms, deadline_ms - agent.clock_offset_ms)
        if agent.armed_at_ms is None or when_ms < agent.armed_at_ms:
            agent.armed_at_ms = Millis(when_ms)
            self.agenda.at(when_ms, self._wake, agent, when_ms)

    def _wake(self, agent: Agent, when_ms: int | None = None) -> None:
        if self.agents.get(agent.id) is not agent or agent.pauses:
            if agent.armed_at_ms == when_ms:
                agent.armed_at_ms = None
            return
        if when_ms is not None and agent.armed_at_ms != when_ms:
            return  # An earlier wake-up was armed since, and has armed the next.
        agent.armed_at_ms = None
        deadline_ms = agent.node.next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= self.agenda.now_ms + agent.clock_offset_ms:
            self._handle(agent, DeadlineReached())
        else:
            self._arm(agent)

    # --- inside: data ---

    def _on_frame(self, agent: Agent, payload: bytes) -> None:
        try:
            passage = agent.data.receive(payload)
        except DecodeError:
            self.fired["undecodable"] += 1
            return
        if passage is None:
            self.fired["duplicate_suppressed"] += 1
            return
        if passage.deliver:
            self._deliver(agent, passage)
        self._forward(agent, passage)

    def _deliver(self, agent: Agent, passage: Passage) -> None:
        for number, topic, _ in publications_of(passage.frame):
            self.delivered[number][agent.id] += 1
            self.watcher.delivered(agent, number, topic)

    def _forward(self, agent: Agent, passage: Passage) -> None:
        for neighbour, mask in passage.sends:
            connection = agent.connection_to(neighbour)
            if connection is None:
                continue
            mask_bits = int.from_bytes(mask, "little")
            self.watcher.frame_sent(agent, connection.path.target, passage, mask_bits)
            self.wires.transmit(connection, "data", agent.data.copy_for(passage, mask))

    def _note(self, id: BrokerId, what: str) -> None:
        self.trace.append((self.agenda.now_ms, id, what))


def address_of(id: BrokerId) -> str:
    """What broker ``id`` advertises."""
    return f"mqtt://b{id}"


def alias_of(id: BrokerId) -> str:
    """Another address of broker ``id``."""
    return f"mqtt://alias-{id}"
