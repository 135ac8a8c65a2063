"""A whole federation in one thread, replayable from a seed.

The nodes and data planes are the daemon's own; only the clock, the network, the brokers and the
dice are ours. Every control message passes the real codec, every publication a real frame.
"""

import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from mqtt5 import PublishPacket

from federator.errors import DecodeError
from federator.protocol import effects as e
from federator.protocol import events
from federator.protocol.filters import matches
from federator.protocol.forwarding.frames import Frame
from federator.protocol.links.outbox import is_outbox, place_of
from federator.protocol.messages import codec, control
from federator.protocol.node import Identity, Node
from federator.protocol.trust.guard import Seals
from federator.protocol.types import BrokerId, Epoch, Millis, Now
from lab.sim.agenda import Agenda
from lab.sim.data import DataPath, DataWorld, LocalLink, number_of, packet_of
from lab.sim.disks import CustodyDisk, DiskInUse, Writer
from lab.sim.network import (
    FIRST_EPOCH,
    INBOX_MAX,
    Agent,
    Broker,
    Connection,
    Dialler,
    Disk,
    Path,
    Published,
)
from lab.sim.parts import Part
from lab.sim.plan import HERE, DelayChange, Named, WorldPlan, address_of, alias_of, link_of
from lab.sim.speech import Speech
from lab.sim.wires import BROKER_PATIENCE_MS, Wires, dialler_of, paths_along

LOCAL_CONNECT_MS = 1
TRACE_EVENTS_MAX = 60

P = TypeVar("P", bound=Part)


class World:
    """Brokers, agents and links under one simulated clock; ``seed`` is its only randomness.

    What else there is, ``parts`` make of the world.
    """

    def __init__(
        self,
        plan: WorldPlan,
        *,
        seed: int,
        parts: Sequence[Callable[["World"], Part]] = (),
        speech: Callable[[DataWorld], Speech] = Speech,
        trace_max: int | None = TRACE_EVENTS_MAX,
    ) -> None:
        self.agenda = Agenda()
        self.trace: deque[tuple[Millis, BrokerId, object]] = deque(maxlen=trace_max)  # last events
        self.fired: Counter[str] = Counter()  # how often what happened
        self.plan = plan
        self.seed = seed
        self.beside = plan.beside  # the other agents at a broker, in its agent's process
        self.brokers = {id: Broker(id) for id in plan.ids}
        self.agents: dict[BrokerId, Agent] = {}
        self.data_paths: dict[BrokerId, DataPath] = {}  # of the newest agents
        self.disks = {id: Disk() for id in plan.ids}
        self.wall_us = 0  # at the start
        self.wall_offset_ms: Counter[BrokerId] = Counter()  # a host's wall clock minus the world's
        self.filters = {id: plan.filters.get(id, frozenset()) for id in plan.ids}
        self.agent_stops: Counter[BrokerId] = Counter()
        self.lives: Counter[BrokerId] = Counter()
        self.published: list[Published] = []
        self.delivered: dict[int, Counter[BrokerId]] = {}
        self.paths: dict[tuple[BrokerId, BrokerId], Path] = {}
        self.speech = speech(self)
        self._rng = random.Random(f"world {seed}")
        self._configured: dict[BrokerId, list[Named]] = {}
        self._near = {id: {id} for id in plan.ids}  # whose agents may be connected there
        self._costs = {link_of(link.a, link.b): link.cost for link in plan.links}
        self.address_book: dict[str, BrokerId] = {}
        self._lay_links()
        self.wires = Wires(
            agenda=self.agenda,
            rng=random.Random(f"wires {seed}"),
            plan=plan,
            paths=self.paths,
            brokers=self.brokers,
            agents=self.agents,
            arrival=self.arrive,
            will_of=self.speech.will_of,
            tell=self.tell,
            fired=self.fired,
        )
        for change in plan.delay_changes:
            self.agenda.at(change.at_ms, self._change_delay, change)
        for id in plan.ids:
            self.agenda.at(self._rng.randint(0, plan.start_ms_max), self._start, id)
        self.parts = [make(self) for make in parts]

    @property
    def now_ms(self) -> Millis:
        return self.agenda.now_ms

    def run_until(self, end_ms: int) -> None:
        self.agenda.run_until(end_ms)

    def part(self, kind: type[P]) -> P:
        [found] = [part for part in self.parts if isinstance(part, kind)]
        return found

    # --- what clients do ---

    def set_filters(self, id: BrokerId, filters: frozenset[str]) -> None:
        before = self.filters[id]
        self.filters[id] = filters
        agent = self.agents.get(id)
        if agent is not None and before != filters:
            self.tell(agent, events.LocalFiltersChanged(filters - before, before - filters))

    def publish(self, id: BrokerId, topic: str, count: int = 1) -> range:
        """A client of broker ``id`` publishes ``count`` times; the numbers of its publications."""
        numbers = range(len(self.published), len(self.published) + count)
        for number in numbers:
            self.published.append(Published(number, "", id, topic, 0, self.now_ms))
            self.delivered[number] = Counter()
        agent = self.agents.get(id)
        if agent is None or not agent.subscribed or agent.pauses:
            return numbers
        if any(matches(filter, topic) for filter in agent.cover):
            run = b"".join(packet_of(topic, number, 0) for number in numbers)
            self.data_paths[agent.id].read(run)
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
                message = self.speech.read(agent, kind, payload)
            except DecodeError:
                self.fired["undecodable"] += 1
            else:
                self._hear(agent, message)
        elif agent.pauses:
            agent.inbox.append(payload)
        else:
            self.data_paths[agent.id].on_frame(payload)

    # --- what agents say ---

    def say(self, agent: Agent, connection: Connection, message: control.Message) -> None:
        payload = self.speech.write(agent, connection, message)
        if payload is not None:
            self.wires.transmit(connection, codec.kind_of(message), payload)

    # --- what befalls brokers, agents and links ---

    def at_broker(self, id: BrokerId) -> tuple[BrokerId, ...]:
        """The agents of a broker: its own, and those beside it."""
        return (id, *self.beside.get(id, ()))

    def stop_broker(self, id: BrokerId, *, orderly: bool = False) -> None:
        """Kill the broker, or stop it so that it saves its sessions.

        All connections to it are reset, its Wills are lost.
        """
        ran = self.brokers[id].running
        for each in self.at_broker(id):
            self._stop_broker(each)
        for part in self.parts if ran else ():
            part.broker_stopped(id, orderly=orderly)

    def _stop_broker(self, id: BrokerId) -> None:
        broker = self.brokers[id]
        broker.stops += 1
        if broker.stops > 1:
            return
        broker.sessions.clear()
        self._note(id, "broker stops")
        for agent in [each for each in self.agents.values() if each.id in self._near[id]]:
            for connection, _ in list(agent.connections.values()):
                if connection.at == id:
                    self.wires.reset(agent, connection)
        local = self.agents.get(id)
        if local is not None:
            self.agenda.at(self.now_ms + LOCAL_CONNECT_MS, self._local_lost, local)

    def start_broker(self, id: BrokerId) -> None:
        """End one cause of the broker's absence."""
        for each in self.at_broker(id):
            broker = self.brokers[each]
            broker.stops -= 1
            if broker.stops == 0:
                broker.life += 1
                self._note(each, "broker starts")
        for part in self.parts if self.brokers[id].running else ():
            part.broker_started(id)

    def stop_agent(self, id: BrokerId, *, graceful: bool = False) -> None:
        """Kill the agent, or let it leave with a bye; those beside its broker with it."""
        for each in self.at_broker(id):
            self._stop_agent(each, graceful=graceful)
        for part in self.parts:
            part.process_stopped(id)

    def _stop_agent(self, id: BrokerId, *, graceful: bool) -> None:
        self.agent_stops[id] += 1
        agent = self.agents.get(id)
        if self.agent_stops[id] > 1 or agent is None:
            return
        graceful = graceful and not agent.pauses
        self._note(id, "agent leaves" if graceful else "agent dies")
        if graceful:
            self.handle(agent, events.LeaveRequested())
        del self.agents[id]
        for connection, dialler in list(agent.connections.values()):
            dialler.wanted = False
            self.wires.close(agent, connection, graceful=graceful)
        for dialler in agent.diallers.values():
            dialler.wanted = False
        for part in self.parts:
            part.stopped(agent, orderly=graceful)

    def start_agent(self, id: BrokerId) -> None:
        """End one cause of the agent's absence."""
        for each in self.at_broker(id):
            self.agent_stops[each] -= 1
            if self.agent_stops[each] == 0:
                self._start(each)

    def forget(self, id: BrokerId) -> None:
        """Lose the agent's disk, and set its clock back: its next epoch was long ago."""
        self.disks[id] = Disk(Epoch(self._rng.randrange(FIRST_EPOCH)))
        for part in self.parts:
            part.forgot(id)

    def pause_agent(self, id: BrokerId) -> None:
        """Stop the agent's process as SIGSTOP does."""
        for each in self.at_broker(id):
            self._pause_agent(each)

    def _pause_agent(self, id: BrokerId) -> None:
        agent = self.agents.get(id)
        if agent is None:
            return
        agent.pauses += 1
        if agent.pauses > 1:
            return
        agent.pause_ticket += 1
        self._note(id, "agent pauses")
        gone_ms = self.now_ms + BROKER_PATIENCE_MS
        self.agenda.at(gone_ms, self._patience_ends, agent, agent.pause_ticket)

    def resume_agent(self, id: BrokerId, life: int) -> None:
        """Let the agent that was paused in its ``life`` go on: first with what waited for it."""
        self._resume_agent(id, life)
        for each in self.beside.get(id, ()):
            self._resume_agent(each, self.lives[each])

    def _resume_agent(self, id: BrokerId, life: int) -> None:
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
                self.data_paths[agent.id].on_frame(waiting)
            elif callable(waiting):
                waiting()
            else:
                self.handle(agent, waiting)
        self._wake(agent)

    def named_by(self, id: BrokerId) -> list[Named]:
        return list(self._configured[id])

    def configure(self, id: BrokerId, named: Sequence[Named]) -> None:
        """The operator of broker ``id`` names these neighbours now; an agent that runs follows."""
        before, self._configured[id] = self._configured[id], list(named)
        agent = self.agents.get(id)
        if agent is not None:
            self._note(id, f"operator names {[(target, link.cost) for _, target, link in named]}")
            given_up = {address for address, *_ in before} - {address for address, *_ in named}
            self.run(agent, self._follow, agent, named, frozenset(given_up))

    def _follow(self, agent: Agent, named: Sequence[Named], given_up: frozenset[str]) -> None:
        """As an agent's ``NeighbourLinks.follow``."""
        said = []
        for address, target, link in named:
            expected = target if link.ids_known else None
            said.append(events.NamedNeighbour(address, expected, link.cost))
            dialler = agent.diallers.get(address)
            if dialler is None or not dialler.wanted:
                if link.ids_known:
                    self._call_off(agent, target)
                self.dial(agent, dialler_of(agent.id, address, target, link))
            else:
                dialler.expected_id, dialler.cost = expected, link.cost
        link_cost = agent.node.parameters.link_cost
        self.handle(agent, events.LinksConfigured(tuple(said), given_up, link_cost))
        for address in given_up:
            self.end(agent, agent.diallers[address])

    def paths_of(self, a: BrokerId, b: BrokerId, *, both: bool) -> list[Path]:
        return [self.paths[a, b], self.paths[b, a]] if both else [self.paths[a, b]]

    # --- inside: agents' lives ---

    def _lay_links(self) -> None:
        for id in self.plan.ids:
            self._configured[id] = []
            self.address_book |= {address_of(id): id, alias_of(id): id}
        for link in self.plan.links:
            self.paths |= paths_along(link)
            for owner, target in ((link.a, link.b), (link.b, link.a)):
                self._near[target].add(owner)
                if owner in link.configured or not link.configured:
                    address = alias_of(target) if owner in link.aliases else address_of(target)
                    self._configured[owner].append((address, target, link))

    def _change_delay(self, change: DelayChange) -> None:
        self.fired["delay_change"] += 1
        for path in self.paths_of(change.a, change.b, both=True):
            path.delay_ms_min = path.delay_ms_max = change.delay_ms

    def _start(self, id: BrokerId) -> None:
        if self.agent_stops[id] or id in self.agents:
            return
        disk = self.disks[id]
        disk.epoch = Epoch(disk.epoch + 1)
        self.lives[id] += 1
        identity = Identity(id, disk.epoch, address_of(id), self.plan.priorities.get(id, 0))
        agent = Agent(
            id=id,
            life=self.lives[id],
            node=Node(
                identity,
                self.plan.parameters_of(id),
                self.plan.failover,
                topology=next(filter(None, (part.topology_of(id) for part in self.parts)), None),
            ),
            clock_offset_ms=self._rng.randint(0, self.plan.clock_offset_ms_max),
        )
        seals = self.speech.begin(agent, self._rng)
        self.data_paths[id] = self._data_path(agent, disk.epoch, seals)
        self.agents[id] = agent
        self._note(id, f"agent starts, life {agent.life}, epoch {disk.epoch}")
        for part in self.parts:
            part.starting(agent)
        if id in self.plan.hubs:
            self.handle(agent, HERE)
        if self.filters[id]:
            self.handle(agent, events.LocalFiltersChanged(self.filters[id], frozenset()))
        self.agenda.at(self.now_ms + LOCAL_CONNECT_MS, self._local_attempt, agent)
        for address, target, link in self._configured[id]:
            self.dial(agent, dialler_of(id, address, target, link))
        for part in self.parts:
            part.started(agent)

    def _call_off(self, agent: Agent, target: BrokerId) -> None:
        """End what was dialled back at ``target``."""
        named = {address for address, *_ in self._configured[agent.id]}
        for address, dialler in agent.diallers.items():
            if dialler.expected_id == target and address not in named:
                self.end(agent, dialler)

    def end(self, agent: Agent, dialler: Dialler, *, telling: bool = True) -> None:
        """Dial no more, and leave in order what was connected."""
        dialler.wanted = False
        if (connection := dialler.connection) is not None:
            self.wires.close(agent, connection, graceful=True)
            if telling:
                self.agenda.at(
                    self.now_ms, self.tell, agent, events.NeighbourDisconnected(connection.id)
                )

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
        self.tell(agent, events.LocalBrokerUp())
        for part in self.parts:
            part.local_up(agent)

    def _local_lost(self, agent: Agent) -> None:
        if self.agents.get(agent.id) is not agent or not agent.subscribed:
            return
        agent.subscribed = False
        self.tell(agent, events.LocalBrokerDown())
        self.agenda.at(self.now_ms + LOCAL_CONNECT_MS, self._local_attempt, agent)
        for part in self.parts:
            part.local_down(agent)

    def _patience_ends(self, agent: Agent, ticket: int) -> None:
        if self.agents.get(agent.id) is not agent or agent.pause_ticket != ticket:
            return
        self.fired["long_pause"] += 1
        for connection, dialler in list(agent.connections.values()):
            self.wires.give_up_there(connection, dialler.address)
            self.wires.ended_here(agent, connection)
        self._local_lost(agent)

    # --- inside: events and effects ---

    def tell(self, agent: Agent, event: events.Event) -> None:
        """An agent hears of ``event``, unless it died; later when it is paused."""
        if self.agents.get(agent.id) is not agent:
            return
        if agent.pauses:
            agent.inbox.append(event)
        else:
            self.handle(agent, event)

    def handle(self, agent: Agent, event: events.Event) -> None:
        self.trace.append((self.agenda.now_ms, agent.id, event))
        now_ms = Millis(self.agenda.now_ms + agent.clock_offset_ms)
        effects = agent.node.handle(event, now_ms=now_ms)
        if effects:
            self._perform(agent, effects)
        self._arm(agent)
        for part in self.parts:
            part.handled(agent, event, effects)

    def _perform(self, agent: Agent, effects: Iterable[e.Effect]) -> None:
        routes_changed, path = False, self.data_paths[agent.id]
        moved: dict[BrokerId, BrokerId | None] = {}
        for effect in effects:
            match effect:
                case e.Send(conn, message):
                    if conn in agent.connections:
                        connection, _ = agent.connections[conn]
                        for part in self.parts:
                            part.sent(agent, connection.path.target, effect)
                        self.say(agent, connection, message)
                case e.SetRoute(filter, route, lost):
                    path.set_route(filter, route, lost=lost)
                    routes_changed = True
                case e.SetDestination(broker, next_hop):
                    moved[broker] = next_hop
                case e.NeighbourReachable(neighbour, reached):
                    agent.reach[neighbour] = reached
                    self._reach_changed(agent, neighbour)
                case e.NeighbourUnreachable(neighbour):
                    agent.reach.pop(neighbour, None)
                    self._reach_changed(agent, neighbour)
                case e.Dial(_, address):
                    self._dial_back(agent, address)
                case e.CallOff(target):
                    self._call_off(agent, target)
                case e.HangUp(conn):
                    if conn in agent.connections:
                        self.end(agent, agent.connections[conn][1], telling=False)
                case e.RenewEpoch(epoch):
                    self.fired["renew_epoch"] += 1
                    self.disks[agent.id].epoch = Epoch(epoch)
                    agent.data.renew_epoch(Epoch(epoch))
                case e.Notice():
                    self.noticed(effect)
                case _:
                    performed = [part.perform(agent, effect) for part in self.parts]
                    if isinstance(effect, e.ControllerEffect):  # such agents report their brokers
                        self.fired[f"failover {type(effect).__name__}"] += 1
                    else:
                        assert any(performed), f"{effect}: no part of this world performs it"
        if moved:
            path.set_destinations(moved)
        if routes_changed:
            path.arm()
            self.cover_changed(agent)

    def _reach_changed(self, agent: Agent, neighbour: BrokerId) -> None:
        self.data_paths[agent.id].reach(neighbour)
        for part in self.parts:
            part.reach_changed(agent, neighbour)

    def _hear(self, agent: Agent, message: control.Message) -> None:
        # Neither retained values nor keys, traces or datagrams are in this world.
        if isinstance(message, control.TreeTorn):
            self.run(agent, self.data_paths[agent.id].on_torn, message)
        elif isinstance(message, control.RepairRequest):
            self.run(agent, self.data_paths[agent.id].on_request, message)
        elif isinstance(message, control.NodeMessage):
            self.tell(agent, events.Received(message))

    def cover_changed(self, agent: Agent) -> None:
        """Others may want something else of an agent's broker."""
        change = agent.data.forwarder.cover_change()
        if change.subscribe or change.unsubscribe:
            agent.cover = tuple(agent.data.forwarder.cover)
        for part in self.parts:
            part.cover_changed(agent)

    def _dial_back(self, agent: Agent, address: str) -> None:
        target = self.address_book[place_of(address)]
        if link_of(agent.id, target) not in self._costs:
            self.fired["dialled in vain"] += 1  # a hello came from where no way leads
            return
        self.fired["dial_back"] += 1
        if address not in agent.diallers or not agent.diallers[address].wanted:
            cost, outbox = self._costs[link_of(agent.id, target)], is_outbox(address)
            self.fired["outbox"] += outbox
            self.dial(agent, Dialler(address, target, target, cost, outbox=outbox))

    def dial(self, agent: Agent, dialler: Dialler, *, key: str = "") -> None:
        """Connect, and keep connecting; ``key``: where its address has another dialler."""
        agent.diallers[key or dialler.address] = dialler
        self.wires.dial(agent, dialler)

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
            self.handle(agent, events.DeadlineReached())
        else:
            self._arm(agent)

    # --- inside: data ---

    def now_of(self, agent: Agent) -> Now:
        now_ms = self.agenda.now_ms
        wall_ms = now_ms + self.wall_offset_ms[agent.id]
        return Now(Millis(now_ms + agent.clock_offset_ms), self.wall_us + wall_ms * 1_000)

    def run(self, agent: Agent, call: Callable[..., None], *args: object) -> None:
        """Run ``call`` in the agent's process: never when it is dead, later when it is paused."""
        if self.agents.get(agent.id) is not agent or agent.doomed:
            return
        if agent.pauses:
            agent.inbox.append(partial(call, *args))
        else:
            call(*args)

    def collects(self, agent: Agent, filters: frozenset[str]) -> None:
        """An agent says from now on that its clients' wishes for ``filters`` only collect."""
        for part in self.parts:
            part.collects(agent, filters)
        self.handle(agent, events.CollectsChanged(filters))

    def kept(self, agent: Agent, number: int) -> None:
        """An agent keeps a publication of its clients at the edge."""
        self.fired["kept"] += 1
        for part in self.parts:
            part.kept(agent, number)

    def noticed(self, notice: e.Notice) -> None:
        self.fired[f"notice {notice.name}"] += 1

    def _data_path(self, agent: Agent, epoch: Epoch, seals: Seals | None) -> DataPath:
        for part in self.parts:
            if (path := part.data_path(agent, epoch, seals)) is not None:
                return path
        # Its broker's clients are imagined: QoS 0 only.
        disk = DiskInUse(CustodyDisk(), int(epoch), Writer())
        link = LocalLink(partial(self._delivered, agent))
        return DataPath(agent, self, epoch, disk, link, seals=seals)

    def _delivered(self, agent: Agent, packet: PublishPacket) -> None:
        number = number_of(packet)
        self.delivered[number][agent.id] += 1
        self.was_delivered(agent, number, packet.topic)

    def was_delivered(self, agent: Agent, number: int, topic: str) -> None:
        """An agent published on its broker what came in a frame."""
        for part in self.parts:
            part.delivered(agent, number, topic)

    def was_sent(self, agent: Agent, target: BrokerId, frame: Frame) -> None:
        """An agent published a frame on another broker."""
        for part in self.parts:
            part.frame_sent(agent, target, frame)

    def _note(self, id: BrokerId, what: str) -> None:
        self.trace.append((self.agenda.now_ms, id, what))
