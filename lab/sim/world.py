"""A whole federation in one thread, replayable from a seed.

The nodes and data planes are the daemon's own; only the clock, the network, the brokers and the
dice are ours. Every control message passes the real codec, every publication a real frame.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from mqtt5 import PublishPacket

from federator.errors import DecodeError
from federator.protocol import effects as e
from federator.protocol import events
from federator.protocol.filters import matches
from federator.protocol.links.outbox import is_outbox, place_of
from federator.protocol.messages import codec, control
from federator.protocol.node import Identity, Node
from federator.protocol.trust.guard import Seals
from federator.protocol.types import BrokerId, Epoch, Millis, Now
from lab.sim.agenda import TRACE_EVENTS_MAX, Clocked
from lab.sim.data import DataPath, DataWorld, LocalLink, number_of, packet_of
from lab.sim.disks import CustodyDisk, DiskInUse, Writer
from lab.sim.network import FIRST_EPOCH, INBOX_MAX, Agent, Broker, Connection, Dialler, Disk, Path
from lab.sim.plan import HERE, DelayChange, Named, WorldPlan, address_of, alias_of, link_of
from lab.sim.speech import Speech
from lab.sim.watcher import Watcher
from lab.sim.wires import BROKER_PATIENCE_MS, Wires, dialler_of, paths_along

LOCAL_CONNECT_MS = 1


class World(Clocked):
    """Brokers, agents and links under one simulated clock; ``seed`` is its only randomness."""

    def __init__(
        self,
        plan: WorldPlan,
        *,
        seed: int,
        watcher: Watcher | None = None,
        beside: Mapping[BrokerId, Sequence[BrokerId]] | None = None,
        speech: Callable[[DataWorld], Speech] = Speech,
        trace_max: int | None = TRACE_EVENTS_MAX,
    ) -> None:
        super().__init__(trace_max=trace_max)
        self.plan = plan
        self.beside = beside or {}  # the other agents at a broker, in its agent's process
        self.watcher = watcher or Watcher()
        self.brokers = {id: Broker(id) for id in plan.ids}
        self.agents: dict[BrokerId, Agent] = {}
        self.data_paths: dict[BrokerId, DataPath] = {}  # of the newest agents
        self.disks = {id: Disk() for id in plan.ids}
        self.filters = {id: plan.filters.get(id, frozenset()) for id in plan.ids}
        self.agent_stops: Counter[BrokerId] = Counter()
        self.lives: Counter[BrokerId] = Counter()
        self.published = 0
        self.topics: dict[int, str] = {}
        self.origins: dict[int, BrokerId] = {}
        self.delivered: dict[int, Counter[BrokerId]] = {}
        self.paths: dict[tuple[BrokerId, BrokerId], Path] = {}
        self.speech = speech(self)
        self._rng = random.Random(f"world {seed}")
        self._configured: dict[BrokerId, list[Named]] = {}
        self._near = {id: {id} for id in plan.ids}  # whose agents may be connected there
        self._costs = {link_of(link.a, link.b): link.cost for link in plan.links}
        self._address_book: dict[str, BrokerId] = {}
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
            tell=self._tell,
            fired=self.fired,
        )
        for change in plan.delay_changes:
            self.agenda.at(change.at_ms, self._change_delay, change)
        for id in plan.ids:
            self.agenda.at(self._rng.randint(0, plan.start_ms_max), self._start, id)

    # --- what clients do ---

    def set_filters(self, id: BrokerId, filters: frozenset[str]) -> None:
        """The clients of a broker now subscribe to ``filters``."""
        before = self.filters[id]
        self.filters[id] = filters
        agent = self.agents.get(id)
        if agent is not None and before != filters:
            self._tell(agent, events.LocalFiltersChanged(filters - before, before - filters))

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
        """Send a control message."""
        payload = self.speech.write(agent, connection, message)
        if payload is not None:
            self.wires.transmit(connection, codec.kind_of(message), payload)

    # --- what befalls brokers, agents and links ---

    def at_broker(self, id: BrokerId) -> tuple[BrokerId, ...]:
        """The agents of a broker: its own, and those beside it."""
        return (id, *self.beside.get(id, ()))

    def stop_broker(self, id: BrokerId) -> None:
        """Kill the broker: everybody's connections to it are reset, its Wills are lost."""
        for each in self.at_broker(id):
            self._stop_broker(each)

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

    def stop_agent(self, id: BrokerId, *, graceful: bool = False) -> None:
        """Kill the agent, or let it leave with a bye; those beside its broker with it."""
        for each in self.at_broker(id):
            self._stop_agent(each, graceful=graceful)

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
        self.watcher.stopped(agent)

    def start_agent(self, id: BrokerId) -> None:
        """End one cause of the agent's absence."""
        for each in self.at_broker(id):
            self.agent_stops[each] -= 1
            if self.agent_stops[each] == 0:
                self._start(each)

    def forget(self, id: BrokerId) -> None:
        """Lose the agent's disk, and set its clock back: its next epoch was long ago."""
        self.disks[id] = Disk(Epoch(self._rng.randrange(FIRST_EPOCH)))

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

    def paths_of(self, a: BrokerId, b: BrokerId, *, both: bool) -> list[Path]:
        """The path from ``a`` to ``b``, and back."""
        return [self.paths[a, b], self.paths[b, a]] if both else [self.paths[a, b]]

    # --- inside: agents' lives ---

    def _lay_links(self) -> None:
        for id in self.plan.ids:
            self._configured[id] = []
            self._address_book |= {address_of(id): id, alias_of(id): id}
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
            node=Node(identity, self.plan.parameters_of(id), self.plan.failover),
            clock_offset_ms=self._rng.randint(0, self.plan.clock_offset_ms_max),
        )
        seals = self.speech.begin(agent, self._rng)
        self.data_paths[id] = self._data_path(agent, disk.epoch, seals)
        self.agents[id] = agent
        self._note(id, f"agent starts, life {agent.life}, epoch {disk.epoch}")
        self.watcher.started(agent)
        if id in self.plan.hubs:
            self.handle(agent, HERE)
        if self.filters[id]:
            self.handle(agent, events.LocalFiltersChanged(self.filters[id], frozenset()))
        self.agenda.at(self.now_ms + LOCAL_CONNECT_MS, self._local_attempt, agent)
        for address, target, link in self._configured[id]:
            self._dial(agent, dialler_of(id, address, target, link))

    def _call_off(self, agent: Agent, target: BrokerId) -> None:
        """End what was dialled back at ``target``."""
        named = {address for address, *_ in self._configured[agent.id]}
        for address, dialler in agent.diallers.items():
            if dialler.target == target and address not in named:
                self._end(agent, dialler)

    def _end(self, agent: Agent, dialler: Dialler, *, telling: bool = True) -> None:
        """Dial no more, and leave in order what was connected."""
        dialler.wanted = False
        if (connection := dialler.connection) is not None:
            self.wires.close(agent, connection, graceful=True)
            if telling:
                self.agenda.at(
                    self.now_ms, self._tell, agent, events.NeighbourDisconnected(connection.id)
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
        self._tell(agent, events.LocalBrokerUp())

    def _local_lost(self, agent: Agent) -> None:
        if self.agents.get(agent.id) is not agent or not agent.subscribed:
            return
        agent.subscribed = False
        self._tell(agent, events.LocalBrokerDown())
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

    def _tell(self, agent: Agent, event: events.Event) -> None:
        if self.agents.get(agent.id) is not agent:
            return
        if agent.pauses:
            agent.inbox.append(event)
        else:
            self.handle(agent, event)

    def handle(self, agent: Agent, event: events.Event) -> None:
        """The agent's node handles ``event``, and its effects are performed."""
        self.trace.append((self.agenda.now_ms, agent.id, event))
        now_ms = Millis(self.agenda.now_ms + agent.clock_offset_ms)
        effects = agent.node.handle(event, now_ms=now_ms)
        if effects:
            self._perform(agent, effects)
        self._arm(agent)
        self.watcher.handled(agent, event, effects)

    def _perform(self, agent: Agent, effects: Iterable[e.Effect]) -> None:
        routes_changed, path = False, self.data_paths[agent.id]
        moved: dict[BrokerId, BrokerId | None] = {}
        for effect in effects:
            match effect:
                case e.Send(conn, message):
                    if conn in agent.connections:
                        connection, _ = agent.connections[conn]
                        self.watcher.sent(agent, connection.path.target, effect)
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
                        self._end(agent, agent.connections[conn][1], telling=False)
                case e.RenewEpoch(epoch):
                    self.fired["renew_epoch"] += 1
                    self.disks[agent.id].epoch = Epoch(epoch)
                    agent.data.renew_epoch(Epoch(epoch))
                case e.PublishGuide() | e.StepIn() | e.StepBack() | e.SetDraining():
                    self._on_failover(agent, effect)
                case e.Pause() | e.Proceed():
                    self._on_serving(agent, effect)
                case e.Notice():
                    self.noticed(effect)
                case _:
                    raise AssertionError(f"{effect}: links of this world are those of its plan")
        if moved:
            path.set_destinations(moved)
        if routes_changed:
            path.arm()
            self._cover_changed(agent)

    def _on_failover(
        self, agent: Agent, effect: e.PublishGuide | e.StepIn | e.StepBack | e.SetDraining
    ) -> None:
        self.fired[f"failover {type(effect).__name__}"] += 1

    def _on_serving(self, agent: Agent, effect: e.Pause | e.Proceed) -> None:
        raise AssertionError("no leaf of this world has two hubs")

    def _reach_changed(self, agent: Agent, neighbour: BrokerId) -> None:
        self.data_paths[agent.id].reach(neighbour)
        self.watcher.link_changed(agent, neighbour)

    def _hear(self, agent: Agent, message: control.Message) -> None:
        # Neither custody nor retained values, keys, traces or datagrams are in this world.
        if isinstance(message, control.TreeTorn):
            self.run(agent, self.data_paths[agent.id].on_torn, message)
        elif isinstance(message, control.NodeMessage):
            self._tell(agent, events.Received(message))

    def _cover_changed(self, agent: Agent) -> None:
        change = agent.data.forwarder.cover_change()
        if change.subscribe or change.unsubscribe:
            agent.cover = tuple(agent.data.forwarder.cover)

    def _dial_back(self, agent: Agent, address: str) -> None:
        target = self._address_book[place_of(address)]
        if link_of(agent.id, target) not in self._costs:
            self.fired["dialled in vain"] += 1  # a hello came from where no way leads
            return
        self.fired["dial_back"] += 1
        if address not in agent.diallers or not agent.diallers[address].wanted:
            cost, outbox = self._costs[link_of(agent.id, target)], is_outbox(address)
            self.fired["outbox"] += outbox
            self._dial(agent, Dialler(address, target, target, cost, outbox=outbox))

    def _dial(self, agent: Agent, dialler: Dialler) -> None:
        agent.diallers[dialler.address] = dialler
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
        """The clocks of an agent's host."""
        now_ms = self.agenda.now_ms
        return Now(Millis(now_ms + agent.clock_offset_ms), now_ms * 1_000)

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
        self.handle(agent, events.CollectsChanged(filters))

    def kept(self, agent: Agent, number: int) -> None:
        """An agent keeps a publication of its clients at the edge."""
        self.fired["kept"] += 1

    def noticed(self, notice: e.Notice) -> None:
        """An agent says something to its operator."""
        self.fired[f"notice {notice.name}"] += 1

    def _data_path(self, agent: Agent, epoch: Epoch, seals: Seals | None) -> DataPath:
        """The data plane of an agent whose broker's clients are imagined: QoS 0 only."""
        disk = DiskInUse(CustodyDisk(), int(epoch), Writer())
        link = LocalLink(partial(self._delivered, agent))
        return DataPath(agent, self, epoch, disk, link, seals=seals)

    def _delivered(self, agent: Agent, packet: PublishPacket) -> None:
        number = number_of(packet)
        self.delivered[number][agent.id] += 1
        self.watcher.delivered(agent, number, packet.topic)

    def _note(self, id: BrokerId, what: str) -> None:
        self.trace.append((self.agenda.now_ms, id, what))
