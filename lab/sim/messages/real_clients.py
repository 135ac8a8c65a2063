"""A federation with real clients at its edges: what one publishes, the others get, or should.

To the world of agents and links this adds what stands around them: brokers that keep sessions and
queues, clients that publish and subscribe, and agents that learn of those clients only from their
broker's log. Every publication is followed from client to client by the ledger.
"""

import random
from functools import partial

from federator.protocol.effects import Effect, Pause, Proceed
from federator.protocol.trust.guard import Seals
from federator.protocol.types import BrokerId, Epoch
from lab.sim.data import DataPath
from lab.sim.disks import CustodyDisk, DiskInUse
from lab.sim.messages.brokers import LOCAL_MS, WALL_CLOCK_AT_START_S, MessageBroker
from lab.sim.messages.clients import Subscriber
from lab.sim.messages.data_connection import DataConnection
from lab.sim.messages.hosts import Host, HostDisk, QuietHost
from lab.sim.messages.hubs import Hubs
from lab.sim.messages.ledger import Ledger
from lab.sim.messages.sessions import Message, control_client_id, data_client_id
from lab.sim.network import Agent
from lab.sim.parts import InvariantError, Part
from lab.sim.story import Fault, FaultKind
from lab.sim.world import World

SLOW_ACKNOWLEDGEMENT_MS = 400
CLOCK_JUMP_MS = 3_600_000
STORM_FILTERS = 40  # subscriptions made one after the other; more than a small queue holds
DOOMED_MS = 300  # how long an agent stays away that was killed between two writes


class RealClients(Part):
    """Brokers with sessions, clients, and what agents' processes have beside their planes."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.agenda, self.fired = world.agenda, world.fired
        plan = world.plan
        world.wall_us = WALL_CLOCK_AT_START_S * 1_000_000
        home = {subscriber.id: subscriber.broker for subscriber in plan.subscribers}
        self.wanted_by_clients = dict.fromkeys(plan.ids, frozenset[str]())  # at first
        for each in plan.subscribers:
            self.wanted_by_clients[each.broker] |= {filter for filter, _ in each.filters}
        self.ledger = Ledger(home, life_of=world.lives.__getitem__, published=world.published)
        self.ledger.fired = world.fired
        self.hosts: dict[BrokerId, Host] = {}
        self.disks = {id: HostDisk(CustodyDisk(plan.log_records_max)) for id in plan.ids}
        self.brokers = {
            id: MessageBroker(id, plan.brokers[id], self.agenda, self.ledger) for id in plan.ids
        }
        self.brokers |= {port.id: self.brokers[port.hub] for port in plan.ports}
        self.hubs = Hubs(world, ledger=self.ledger, disks=self.disks)
        rng = random.Random(f"clients {world.seed}")
        self.subscribers = {
            each.id: Subscriber(each, self.brokers[each.broker], self.agenda, rng, self.ledger)
            for each in plan.subscribers
        }
        self.collected: dict[BrokerId, set[str]] = {id: set() for id in plan.ids}  # ever
        self._recovering: set[BrokerId] = set()
        self._unnoted: dict[BrokerId, list[int]] = {}  # what agents that are dead sent lately
        self._marker_may_be_older: set[BrokerId] = set()  # agents whose broker was killed
        self._connections: dict[BrokerId, DataConnection] = {}  # the newest of each agent
        for subscriber in self.subscribers.values():
            self.agenda.at(subscriber.plan.start_ms, subscriber.start)

    # --- what clients do ---

    def client_publishes(self, publisher: str, id: BrokerId, topic: str, qos: int) -> None:
        """A client of broker ``id`` publishes once; nothing happens while the broker is away."""
        broker = self.brokers[id]
        if not broker.running:
            return
        item = self.ledger.publish(publisher, id, topic, qos, now_ms=self.world.now_ms)
        session = broker.sessions.get(data_client_id(id))
        if (session is None or session.qos_of(topic) is None) and id in self._recovering:
            self.ledger.excuse(item.number, "broker without our session")
        broker.publish(publisher, Message(topic, qos, item.number))

    # --- what befalls brokers and agents ---

    def broker_stopped(self, id: BrokerId, *, orderly: bool) -> None:
        broker = self.brokers[id]
        if orderly and broker.plan.persistent:
            broker.save()
        died = list(broker.sessions.values())
        self.ledger.broker_dies(died, broker.database, partial(self.hubs.may_miss, id))
        broker.stop()
        for each in self.world.at_broker(id):
            if each in self.hosts:
                self.hosts[each].connection.broker_dies()
            self._recovering.add(each)
            if not orderly:
                self._marker_may_be_older.add(each)
        for subscriber in self.subscribers.values():
            if subscriber.plan.broker == id:
                subscriber.broker_lost()

    def may_miss_brought(self, id: BrokerId, number: int) -> list[str]:
        """The clients that miss a publication which agent ``id`` was just giving its broker."""
        return self.hubs.may_miss_brought(id, number)

    def broker_started(self, id: BrokerId) -> None:
        self.brokers[id].start()

    def process_stopped(self, id: BrokerId) -> None:
        """What was published of late is not known again: it may come by another way."""
        for each in self.world.at_broker(id) if self.world.plan.roaming else ():
            for number in self._unnoted.get(each, ()):
                self.ledger.tolerate_at(each, number)
        self.hubs.stopped(id)

    def stopped(self, agent: Agent, *, orderly: bool) -> None:
        """Its connections end, and of its table what was not saved is forgotten."""
        id = agent.id
        host = self.hosts.pop(id)
        self._unnoted[id] = host.connection.unnoted
        host.end(orderly=orderly)
        saved_ms = self.disks[id].saved_at_ms - self.world.wall_offset_ms[id]
        for subscriber in self.subscribers.values():
            if subscriber.plan.broker == id and not orderly:
                subscriber.agent_dies(saved_ms - 1)

    def forgot(self, id: BrokerId) -> None:
        self.disks[id].lose()
        self.ledger.distrust(id)
        self.ledger.withdraw_at(id)

    def befall(self, fault: Fault) -> None:
        """What goes wrong at the edges: clients, clocks, disks, brokers that are restarted."""
        id, until_ms, at = fault.node or BrokerId(0), fault.until_ms, self.agenda.at
        client = self.subscribers.get(fault.client or "")
        match fault.kind:
            case FaultKind.CLIENT_AWAY if client:
                client.leave()
                at(until_ms, client.come_back)
            case FaultKind.SLOW_CONSUMER if client:
                client.acknowledges_after_ms = SLOW_ACKNOWLEDGEMENT_MS
                at(until_ms, setattr, client, "acknowledges_after_ms", LOCAL_MS)
            case FaultKind.SUBSCRIPTION_STORM if client:
                storm = {f"storm/{number}": 1 for number in range(STORM_FILTERS)}
                client.change_filters(client.filters | storm)
            case FaultKind.BROKER_RESTART:
                self.world.stop_broker(id, orderly=True)
                at(until_ms, self.world.start_broker, id)
            case FaultKind.CLOCK_JUMP:
                self._set_clock(id, CLOCK_JUMP_MS if until_ms % 2 else -CLOCK_JUMP_MS)
            case FaultKind.DISK_FULL:
                self.disks[id].custody.full_for += 1
                at(until_ms, self._make_room, id)
            case FaultKind.CRASH_BETWEEN_WRITES if id in self.world.agents:
                agent = self.world.agents[id]
                agent.crash_after = fault.steps
                at(until_ms, setattr, agent, "crash_after", None)

    def _set_clock(self, id: BrokerId, by_ms: int) -> None:
        """Change a host's wall clock: what is logged there looks older, or newer, than it is."""
        self.world.wall_offset_ms[id] += by_ms
        if by_ms > 0:
            self.ledger.distrust(id)
        else:
            self.ledger.set_back(id)

    def _make_room(self, id: BrokerId) -> None:
        self.disks[id].custody.full_for -= 1

    # --- surroundings of the agents' processes ---

    def interest_changed(
        self, agent: Agent, added: frozenset[str], removed: frozenset[str]
    ) -> None:
        """What the clients of a broker want, as its agent knows it; ports hear no log."""
        if agent.id in self.hubs.ports:
            return
        widened = self.hosts[agent.id].widened
        agent.data.forwarder.widen(widened)
        if agent.id in self.hubs.switches:
            self.hubs.on_clients(agent.id, added, removed)
            return
        self.world.data_paths[agent.id].doubt(widened)
        before = self.world.filters[agent.id]
        self.world.set_filters(agent.id, (before - removed) | added)

    def acknowledging(self, agent: Agent, number: int) -> None:
        """An agent tells its broker that it has a publication: then it must have it.

        Beside a hub's broker each agent logs what its own side wants; others log the rest.
        """
        if agent.id in self.ledger.relays:
            topic = self.ledger.published[number].topic
            if agent.data.forwarder.route_topic(topic) is None:
                return
        log = self.disks[agent.id].custody.log
        logged = log is not None and number in log.numbers
        if not logged and not self.ledger.calm and self.ledger.owed_elsewhere(number):
            item = self.ledger.published[number]
            raise InvariantError("logged_before_acknowledged", f"{agent.id} acknowledges {item}")

    def tend(self, agent: Agent) -> None:
        """A second has passed: the agent's custody is bounded."""
        if self.world.data_paths[agent.id].tend():
            self.world.cover_changed(agent)

    def collects(self, agent: Agent, filters: frozenset[str]) -> None:
        self.collected[agent.id] |= filters

    def kept(self, agent: Agent, number: int) -> None:
        """Who only collects need not get it; everybody else must."""
        for subscriber in self.subscribers.values():
            collected = self.collected[subscriber.plan.broker]
            self.ledger.excuse_collected(number, subscriber.plan.id, collected)

    def doom(self, agent: Agent) -> None:
        """The agent is killed here, between two writes, and started again soon."""
        self.fired["crash between writes"] += 1
        self.agenda.at(self.agenda.now_ms, self._end_doomed, agent)

    def _end_doomed(self, agent: Agent) -> None:
        world = self.world
        if world.agents.get(agent.id) is agent:
            process = self.hubs.hub_of(agent.id)
            world.stop_agent(process)
            self.agenda.at(world.now_ms + DOOMED_MS, world.start_agent, process)

    # --- agents' lives ---

    def data_path(self, agent: Agent, epoch: Epoch, seals: Seals | None) -> DataPath:
        """Between an agent and its broker stands a connection, and under custody a disk."""
        id = agent.id
        self.world.filters[id] = frozenset()  # until it hears of them
        connection = DataConnection(agent, self.brokers[id], self.ledger, self.world, self)
        self._connections[id] = connection
        disk = DiskInUse(self.disks[id].custody, int(epoch), connection)
        self.hubs.share_clock(agent)
        path = DataPath(agent, self.world, epoch, disk, connection, seals=seals)
        self.hubs.join(agent)
        return path

    def started(self, agent: Agent) -> None:
        """It reads its disk; where its broker logs nothing it is told what clients want."""
        id, world = agent.id, self.world
        path, connection = world.data_paths[id], self._connections[id]
        broker = self.brokers[id]
        kind = Host if broker.plan.logs else QuietHost
        self.hosts[id] = kind(agent, broker, self.disks[id], path, connection, world, self)
        self.hosts[id].start()
        path.arm()
        world.cover_changed(agent)
        self.hubs.started(id)
        if not broker.plan.logs:
            self.interest_changed(agent, self.wanted_by_clients[id], frozenset())

    def perform(self, agent: Agent, effect: Effect) -> bool:
        """Exchange nothing with a neighbour, or exchange again."""
        if isinstance(effect, Pause | Proceed):
            self.hubs.on_serving(agent, effect)
        return isinstance(effect, Pause | Proceed)

    def reach_changed(self, agent: Agent, neighbour: BrokerId) -> None:
        if agent.id in self.hubs.serving:
            self.hubs.serving[agent.id].on_neighbour(neighbour, neighbour in agent.reach)

    def _host_of(self, agent: Agent) -> Host | None:
        host = self.hosts.get(agent.id)
        return host if host is not None and host.agent is agent else None

    def local_up(self, agent: Agent) -> None:
        """Its connections are made; of what its ports subscribe lines may be missing."""
        host = self._host_of(agent)
        if host is None or host.data is not None:
            return
        unnoted = self._unnoted.pop(agent.id, ())
        lost = not host.broker.retains(agent.data.delivery.marker_topic)
        if lost or agent.id in self._marker_may_be_older:
            for number in unnoted:
                self.ledger.tolerate_at(agent.id, number)
        host.connect()
        self._recovering.discard(agent.id)
        self._marker_may_be_older.discard(agent.id)
        for port in self.world.beside.get(agent.id, ()):
            for name in (control_client_id, data_client_id):
                session = host.broker.sessions.get(name(port))
                if session is not None:
                    host.hold(session.client_id, session.filters)

    def local_down(self, agent: Agent) -> None:
        host = self._host_of(agent)
        if host is not None:
            host.connection.cut()
            self.world.run(agent, host.disconnect)

    def cover_changed(self, agent: Agent) -> None:
        host = self._host_of(agent)
        if host is not None:
            host.set_cover(frozenset(agent.cover))
