"""A federation with real clients at its edges: what one publishes, the others get, or should.

To the world of agents and links this adds what stands around them: brokers that keep sessions and
queues, clients that publish and subscribe, and agents that learn of those clients only from their
broker's log. Every publication is followed from client to client by the ledger.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from federator.protocol import events
from federator.protocol.effects import Pause, Proceed
from federator.protocol.messages.control import Message as ControlMessage
from federator.protocol.messages.control import RepairRequest
from federator.protocol.trust.guard import Seals
from federator.protocol.types import BrokerId, Epoch, Now
from lab.sim.data import DataPath, DataWorld
from lab.sim.disks import RECORDS_MAX, CustodyDisk, DiskInUse
from lab.sim.messages.brokers import WALL_CLOCK_AT_START_S, BrokerPlan, MessageBroker
from lab.sim.messages.clients import Subscriber, SubscriberPlan
from lab.sim.messages.data_connection import DataConnection
from lab.sim.messages.hosts import Host, HostDisk, QuietHost
from lab.sim.messages.hubs import FILTERS_MAX, Hubs, Port, beside_hubs
from lab.sim.messages.ledger import Ledger
from lab.sim.messages.sessions import Message, control_client_id, data_client_id
from lab.sim.network import Agent
from lab.sim.plan import Named, WorldPlan
from lab.sim.speech import Speech
from lab.sim.watcher import InvariantError, Watcher
from lab.sim.wires import dialler_of
from lab.sim.world import World

DOOMED_MS = 300  # how long an agent stays away that was killed between two writes


@dataclass(frozen=True, slots=True)
class MessagePlan:
    """A federation, its brokers' configuration, and its subscribers."""

    world: WorldPlan
    brokers: Mapping[BrokerId, BrokerPlan]
    subscribers: tuple[SubscriberPlan, ...]
    log_records_max: int = RECORDS_MAX  # frames that each agent's log has room for
    ports: tuple[Port, ...] = ()  # where leaves hang, if any
    hub_filters_max: int = FILTERS_MAX[-1]
    return_after_ms: int = 0  # of leaves that have two hubs
    turn_ms: int = 0  # for which a hub gathers what its sides want of each other


class MessageWorld(World):
    """Brokers with clients, agents and links under one simulated clock."""

    def __init__(
        self,
        plan: MessagePlan,
        *,
        seed: int,
        watcher: Watcher | None = None,
        speech: Callable[[DataWorld], Speech] = Speech,
    ) -> None:
        beside = beside_hubs(plan.ports)
        super().__init__(plan.world, seed=seed, watcher=watcher, beside=beside, speech=speech)
        home = {subscriber.id: subscriber.broker for subscriber in plan.subscribers}
        self.wanted_by_clients = dict.fromkeys(self.plan.ids, frozenset[str]())  # at first
        for each in plan.subscribers:
            self.wanted_by_clients[each.broker] |= {filter for filter, _ in each.filters}
        self.ledger = Ledger(home, life_of=self.lives.__getitem__)
        self.ledger.fired = self.fired
        self.hosts: dict[BrokerId, Host] = {}
        self.host_disks = {id: HostDisk(CustodyDisk(plan.log_records_max)) for id in self.plan.ids}
        self.local = {
            id: MessageBroker(id, plan.brokers[id], self.agenda, self.ledger)
            for id in self.plan.ids
        }
        self.local |= {port.id: self.local[port.hub] for port in plan.ports}
        self.hubs = Hubs(
            self,
            plan.ports,
            ledger=self.ledger,
            disks=self.host_disks,
            filters_max=plan.hub_filters_max,
            return_after_ms=plan.return_after_ms,
            turn_ms=plan.turn_ms,
        )
        rng = random.Random(f"clients {seed}")
        self.subscribers = {
            each.id: Subscriber(each, self.local[each.broker], self.agenda, rng, self.ledger)
            for each in plan.subscribers
        }
        self.collected: dict[BrokerId, set[str]] = {id: set() for id in self.plan.ids}  # ever
        self._recovering: set[BrokerId] = set()
        self._unnoted: dict[BrokerId, list[int]] = {}  # what agents that are dead sent lately
        self._connections: dict[BrokerId, DataConnection] = {}  # the newest of each agent
        for subscriber in self.subscribers.values():
            self.agenda.at(subscriber.plan.start_ms, subscriber.start)

    # --- what clients do ---

    def client_publishes(self, publisher: str, id: BrokerId, topic: str, qos: int) -> None:
        """A client of broker ``id`` publishes once; nothing happens while the broker is away."""
        broker = self.local[id]
        if not broker.running:
            return
        item = self.ledger.publish(publisher, id, topic, qos, now_ms=self.now_ms)
        self.topics[item.number] = topic
        self.origins[item.number] = id
        session = broker.sessions.get(data_client_id(id))
        if (session is None or session.qos_of(topic) is None) and id in self._recovering:
            self.ledger.excuse(item.number, "broker without our session")
        broker.publish(publisher, Message(topic, qos, item.number))

    # --- what befalls brokers and agents ---

    def stop_broker(self, id: BrokerId, *, orderly: bool = False) -> None:
        """Kill the broker, or stop it so that it saves its sessions."""
        was_running = self.brokers[id].running
        super().stop_broker(id)
        if not was_running:
            return
        broker = self.local[id]
        if orderly and broker.plan.persistent:
            broker.save()
        died = list(broker.sessions.values())
        self.ledger.broker_dies(died, broker.database, partial(self.hubs.may_miss, id))
        broker.stop()
        for each in self.at_broker(id):
            if each in self.hosts:
                self.hosts[each].connection.broker_dies()
            self._recovering.add(each)
        for subscriber in self.subscribers.values():
            if subscriber.plan.broker == id:
                subscriber.broker_lost()

    def may_miss_brought(self, id: BrokerId, number: int) -> list[str]:
        """The clients that miss a publication which agent ``id`` was just giving its broker."""
        return self.hubs.may_miss_brought(id, number)

    def start_broker(self, id: BrokerId) -> None:
        """End one cause of the broker's absence."""
        super().start_broker(id)
        if self.brokers[id].running:
            self.local[id].start()

    def stop_agent(self, id: BrokerId, *, graceful: bool = False) -> None:
        """Kill the agent, or let it leave with a bye; those beside its broker with it."""
        super().stop_agent(id, graceful=graceful)
        for each in self.at_broker(id) if self.plan.roaming else ():
            # What was published of late is not known again: it may come by another way.
            for number in self._unnoted.get(each, ()):
                self.ledger.tolerate_at(each, number)
        self.hubs.stopped(id)

    def _stop_agent(self, id: BrokerId, *, graceful: bool) -> None:
        agent = self.agents.get(id)
        orderly = graceful and agent is not None and not agent.pauses
        super()._stop_agent(id, graceful=graceful)
        if id not in self.agents and id in self.hosts:
            host = self.hosts.pop(id)
            self._unnoted[id] = host.connection.unnoted
            host.end(orderly=orderly)
            saved_ms = self.host_disks[id].saved_at_ms - self.host_disks[id].wall_offset_ms
            for subscriber in self.subscribers.values():
                if subscriber.plan.broker == id and not orderly:
                    subscriber.agent_dies(saved_ms - 1)

    def forget(self, id: BrokerId) -> None:
        """Lose the agent's disk, and with it what was in custody."""
        super().forget(id)
        self.host_disks[id].lose()
        self.ledger.distrust(id)
        self.ledger.withdraw_at(id)

    def set_clock(self, id: BrokerId, by_ms: int) -> None:
        """Change a host's wall clock: what is logged there looks older, or newer, than it is."""
        self.host_disks[id].wall_offset_ms += by_ms
        if by_ms > 0:
            self.ledger.distrust(id)
        else:
            self.ledger.set_back(id)

    def fill_disk(self, id: BrokerId) -> None:
        """Nothing can be written on the agent's disk any more."""
        self.host_disks[id].custody.full_for += 1

    def make_room(self, id: BrokerId) -> None:
        """End one cause of the full disk."""
        self.host_disks[id].custody.full_for -= 1

    def named_by(self, id: BrokerId) -> list[Named]:
        """The neighbours that the operator of broker ``id`` names."""
        return list(self._configured[id])

    def configure(self, id: BrokerId, named: Sequence[Named]) -> None:
        """The operator of broker ``id`` names these neighbours now; an agent that runs follows."""
        before, self._configured[id] = self._configured[id], list(named)
        agent = self.agents.get(id)
        if agent is not None:
            self._note(id, f"operator names {[(target, link.cost) for _, target, link in named]}")
            given_up = {address for address, *_ in before} - {address for address, *_ in named}
            self.run(agent, self._follow, agent, named, frozenset(given_up))

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
        self.data_paths[agent.id].doubt(widened)
        self.set_filters(agent.id, (self.filters[agent.id] - removed) | added)

    def acknowledging(self, agent: Agent, number: int) -> None:
        """An agent tells its broker that it has a publication: then it must have it.

        Beside a hub's broker each agent logs what its own side wants; others log the rest.
        """
        if agent.id in self.ledger.relays:
            topic = self.ledger.published[number].topic
            if agent.data.forwarder.route_topic(topic) is None:
                return
        log = self.host_disks[agent.id].custody.log
        logged = log is not None and number in log.numbers
        if not logged and not self.ledger.calm and self.ledger.owed_elsewhere(number):
            item = self.ledger.published[number]
            raise InvariantError("logged_before_acknowledged", f"{agent.id} acknowledges {item}")

    def tend(self, agent: Agent) -> None:
        """A second has passed: the agent's custody is bounded."""
        if self.data_paths[agent.id].tend():
            self._cover_changed(agent)

    def now_of(self, agent: Agent) -> Now:
        """The clocks of an agent's host."""
        wall_ms = self.now_ms + self.host_disks[agent.id].wall_offset_ms
        return Now(super().now_of(agent).ms, WALL_CLOCK_AT_START_S * 1_000_000 + wall_ms * 1_000)

    def collects(self, agent: Agent, filters: frozenset[str]) -> None:
        """An agent says from now on that its clients' wishes for ``filters`` only collect."""
        self.collected[agent.id] |= filters
        super().collects(agent, filters)

    def kept(self, agent: Agent, number: int) -> None:
        """Who only collects need not get it; everybody else must."""
        super().kept(agent, number)
        for subscriber in self.subscribers.values():
            collected = self.collected[subscriber.plan.broker]
            self.ledger.excuse_collected(number, subscriber.plan.id, collected)

    def doom(self, agent: Agent) -> None:
        """The agent is killed here, between two writes, and started again soon."""
        self.fired["crash between writes"] += 1
        self.agenda.at(self.now_ms, self._end_doomed, agent)

    # --- inside ---

    def _start(self, id: BrokerId) -> None:
        if self.agent_stops[id] or id in self.agents:
            return
        self.filters[id] = frozenset()
        super()._start(id)
        agent = self.agents[id]
        path, connection = self.data_paths[id], self._connections[id]
        broker = self.local[id]
        kind = Host if broker.plan.logs else QuietHost
        self.hosts[id] = kind(agent, broker, self.host_disks[id], path, connection, self)
        self.hosts[id].start()
        self.data_paths[agent.id].arm()
        self._cover_changed(agent)
        self.hubs.started(id)
        if not broker.plan.logs:
            self.interest_changed(agent, self.wanted_by_clients[id], frozenset())

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
                self._dial(agent, dialler_of(agent.id, address, target, link))
            else:
                dialler.expected_id, dialler.cost = expected, link.cost
        link_cost = agent.node.parameters.link_cost
        self.handle(agent, events.LinksConfigured(tuple(said), given_up, link_cost))
        for address in given_up:
            self._end(agent, agent.diallers[address])

    def _data_path(self, agent: Agent, epoch: Epoch, seals: Seals | None) -> DataPath:
        id = agent.id
        connection = DataConnection(agent, self.local[id], self.ledger, self)
        self._connections[id] = connection
        disk = DiskInUse(self.host_disks[id].custody, int(epoch), connection)
        self.hubs.share_clock(agent)
        path = DataPath(agent, self, epoch, disk, connection, seals=seals)
        self.hubs.join(agent)
        return path

    def _on_serving(self, agent: Agent, effect: Pause | Proceed) -> None:
        self.hubs.on_serving(agent, effect)

    def _reach_changed(self, agent: Agent, neighbour: BrokerId) -> None:
        super()._reach_changed(agent, neighbour)
        if agent.id in self.hubs.serving:
            self.hubs.serving[agent.id].on_neighbour(neighbour, neighbour in agent.reach)

    def _end_doomed(self, agent: Agent) -> None:
        if self.agents.get(agent.id) is agent:
            process = self.hubs.hub_of(agent.id)
            self.stop_agent(process)
            self.agenda.at(self.now_ms + DOOMED_MS, self.start_agent, process)

    def _host_of(self, agent: Agent) -> Host | None:
        host = self.hosts.get(agent.id)
        return host if host is not None and host.agent is agent else None

    def _local_attempt(self, agent: Agent) -> None:
        super()._local_attempt(agent)
        host = self._host_of(agent)
        if agent.subscribed and host is not None and host.data is None:
            unnoted = self._unnoted.pop(agent.id, ())
            if not self.local[agent.id].retains(agent.data.delivery.marker_topic):
                for number in unnoted:
                    self.ledger.tolerate_at(agent.id, number)
            host.connect()
            self._recovering.discard(agent.id)
            self._hold_ports(host)

    def _hold_ports(self, host: Host) -> None:
        """Of what a hub's ports subscribe beside its agent lines may be missing."""
        for port in self.beside.get(host.agent.id, ()):
            for name in (control_client_id, data_client_id):
                session = host.broker.sessions.get(name(port))
                if session is not None:
                    host.hold(session.client_id, session.filters)

    def _local_lost(self, agent: Agent) -> None:
        super()._local_lost(agent)
        host = self._host_of(agent)
        if host is not None:
            host.connection.cut()
            self.run(agent, host.disconnect)

    def _hear(self, agent: Agent, message: ControlMessage) -> None:
        if isinstance(message, RepairRequest):
            self.run(agent, self.data_paths[agent.id].on_request, message)
        else:
            super()._hear(agent, message)

    def _cover_changed(self, agent: Agent) -> None:
        super()._cover_changed(agent)
        host = self._host_of(agent)
        if host is not None:
            host.set_cover(frozenset(agent.cover))
