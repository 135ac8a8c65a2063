"""A federation with real clients at its edges: what one publishes, the others get, or should.

To the world of agents and links this adds what stands around them: brokers that keep sessions and
queues, clients that publish and subscribe, and agents that learn of those clients only from their
broker's log. Every publication is followed from client to client by the ledger.

Source: testing.md, "The simulator".
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from federator.errors import DecodeError
from federator.protocol import codec
from federator.protocol.effects import FilterRoute
from federator.protocol.forwarding import Sends
from federator.protocol.frames import REPAIR_FLAG, TAIL_FLAG, Frame, mask_bytes, unpack
from federator.protocol.messages import Message as ControlMessage
from federator.protocol.messages import RepairRequest
from federator.protocol.types import BrokerId
from federator.sim.agents import Agent
from federator.sim.data import Passage, publications_of
from federator.sim.messages.brokers import BrokerPlan, MessageBroker
from federator.sim.messages.clients import Subscriber, SubscriberPlan
from federator.sim.messages.disks import RECORDS_MAX, CustodyDisk
from federator.sim.messages.hosts import Host, HostDisk
from federator.sim.messages.ledger import Ledger
from federator.sim.messages.sessions import Message, data_client_id
from federator.sim.watcher import InvariantError, Watcher
from federator.sim.world import TRACE_EVENTS_MAX, World, WorldPlan

DOOMED_MS = 300
"""How long an agent stays away that was killed between two writes."""


@dataclass(frozen=True, slots=True)
class MessagePlan:
    """A federation, its brokers' configuration, and its subscribers.

    Attributes:
        log_records_max: Frames that each agent's log has room for.
    """

    world: WorldPlan
    brokers: Mapping[BrokerId, BrokerPlan]
    subscribers: tuple[SubscriberPlan, ...]
    log_records_max: int = RECORDS_MAX


class MessageWorld(World):
    """Brokers with clients, agents and links under one simulated clock.

    Args:
        plan: What there is.
        seed: The only source of randomness.
        watcher: Told about everything between agents; checks it.
        trace_max: Events remembered for the report of a violation.
    """

    def __init__(
        self,
        plan: MessagePlan,
        *,
        seed: int,
        watcher: Watcher | None = None,
        trace_max: int | None = TRACE_EVENTS_MAX,
    ) -> None:
        super().__init__(plan.world, seed=seed, watcher=watcher, trace_max=trace_max)
        home = {subscriber.id: subscriber.broker for subscriber in plan.subscribers}
        self.ledger = Ledger(home, life_of=self._life_of)
        self.hosts: dict[BrokerId, Host] = {}
        self.host_disks = {id: HostDisk(CustodyDisk(plan.log_records_max)) for id in self.plan.ids}
        self.local = {
            id: MessageBroker(id, plan.brokers[id], self.agenda, self.ledger)
            for id in self.plan.ids
        }
        rng = random.Random(f"clients {seed}")
        self.subscribers = {
            each.id: Subscriber(each, self.local[each.broker], self.agenda, rng, self.ledger)
            for each in plan.subscribers
        }
        self._recovering: set[BrokerId] = set()
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
        self.ledger.broker_dies(list(broker.sessions.values()), broker.database)
        broker.stop()
        host = self.hosts.get(id)
        if host is not None:
            host.outlet.outbox.broker_dies()
        self._recovering.add(id)
        for subscriber in self.subscribers.values():
            if subscriber.plan.broker == id:
                subscriber.broker_lost()

    def start_broker(self, id: BrokerId) -> None:
        """End one cause of the broker's absence."""
        super().start_broker(id)
        if self.brokers[id].running:
            self.local[id].start()

    def stop_agent(self, id: BrokerId, *, graceful: bool = False) -> None:
        """Kill the agent, or let it leave with a bye."""
        agent = self.agents.get(id)
        orderly = graceful and agent is not None and not agent.pauses
        super().stop_agent(id, graceful=graceful)
        if id not in self.agents and id in self.hosts:
            self.hosts.pop(id).end(orderly=orderly)
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
        """Change a host's wall clock; forward, what is owed and logged there looks too old."""
        self.host_disks[id].wall_offset_ms += by_ms
        if by_ms > 0:
            self.ledger.distrust(id)

    def fill_disk(self, id: BrokerId) -> None:
        """Nothing can be written on the agent's disk any more."""
        self.host_disks[id].custody.full_for += 1

    def make_room(self, id: BrokerId) -> None:
        """End one cause of the full disk."""
        self.host_disks[id].custody.full_for -= 1

    # --- surroundings of the agents' processes ---

    def interest_changed(
        self, agent: Agent, added: frozenset[str], removed: frozenset[str]
    ) -> None:
        """What the clients of a broker want, as its agent knows it."""
        agent.data.forwarder.widened = self.hosts[agent.id].discovery.widened
        self.set_filters(agent.id, (self.filters[agent.id] - removed) | added)

    def run(self, agent: Agent, call: Callable[..., None], *args: object) -> None:
        """Run ``call`` in the agent's process."""
        if self.agents.get(agent.id) is not agent:
            return
        if agent.pauses:
            agent.inbox.append(partial(call, *args))
        else:
            call(*args)

    def noticed(self, name: str) -> None:
        """An agent says something to its operator."""
        self.fired[f"notice {name}"] += 1

    def take_plain(self, agent: Agent, message: Message) -> None:
        """A client published at QoS 0."""
        number = message.number
        passage = agent.data.publish(message.topic, range(number, number + 1))
        if passage is not None:
            self._forward(agent, passage)

    def send_own(self, agent: Agent, frame: Frame, sends: Sends) -> None:
        """Send copies of a frame of the agent's own."""
        self._forward(agent, Passage(frame, 0, sends, deliver=False))

    def send_repair(self, agent: Agent, neighbour: BrokerId, frame: Frame) -> bool:
        """Send a repair, unless the neighbour is out of reach or much waits to be sent there."""
        connection = agent.connection_to(neighbour)
        if connection is None or connection.path.clogged_until_ms > self.now_ms:
            self.fired["repair refused"] += 1
            return False
        self.fired["repair sent"] += 1
        passage = Passage(frame, frame.hops, (), deliver=False)
        mask = mask_bytes(frame.mask, frame.k)
        self.wires.transmit(connection, "data", agent.data.copy_for(passage, mask))
        return True

    def send_request(self, agent: Agent, neighbour: BrokerId, request: RepairRequest) -> None:
        """Ask a neighbour for what is missing."""
        connection = agent.connection_to(neighbour)
        if connection is not None:
            self.fired["repair asked"] += 1
            self.wires.transmit(connection, codec.kind_of(request), codec.encode(request))

    def acknowledging(self, agent: Agent, number: int) -> None:
        """An agent tells its broker that it has a publication: then it must have it."""
        log = self.host_disks[agent.id].custody.log
        logged = log is not None and number in log.numbers
        if not logged and not self.ledger.calm and self.ledger.owed_elsewhere(number):
            item = self.ledger.published[number]
            raise InvariantError("logged_before_acknowledged", f"{agent.id} acknowledges {item}")

    def delivering(self, agent: Agent, number: int, topic: str) -> None:
        """An agent publishes on its broker what came from another."""
        if not self.ledger.may_repeat(number):
            self.watcher.delivered(agent, number, topic)

    def too_old(self, numbers: list[int]) -> None:
        """Publications that a log has no room for any more."""
        for number in numbers:
            self.ledger.excuse(number, "log full")

    def owed_expired(self, agent: Agent) -> None:
        """Routes changed because filters are no longer owed."""
        self._cover_changed(agent)

    def doom(self, agent: Agent) -> None:
        """The agent is killed here, between two writes, and started again soon."""
        self.fired["crash between writes"] += 1
        self.agenda.at(self.now_ms, self._end_doomed, agent)

    # --- inside ---

    def _life_of(self, id: BrokerId) -> int:
        return self.lives[id]

    def _start(self, id: BrokerId) -> None:
        if self.agent_stops[id] or id in self.agents:
            return
        self.filters[id] = frozenset()
        super()._start(id)
        agent = self.agents[id]
        host = self.hosts[id] = Host(
            agent, self.local[id], self.host_disks[id], self.agenda, self.ledger, self
        )
        host.start()
        self._cover_changed(agent)

    def _end_doomed(self, agent: Agent) -> None:
        if self.agents.get(agent.id) is agent:
            self.stop_agent(agent.id)
            self.agenda.at(self.now_ms + DOOMED_MS, self.start_agent, agent.id)

    def _host_of(self, agent: Agent) -> Host | None:
        host = self.hosts.get(agent.id)
        return host if host is not None and host.agent is agent else None

    def _local_attempt(self, agent: Agent) -> None:
        super()._local_attempt(agent)
        host = self._host_of(agent)
        if agent.subscribed and host is not None and host.data is None:
            host.connect()
            self._recovering.discard(agent.id)

    def _local_lost(self, agent: Agent) -> None:
        super()._local_lost(agent)
        host = self._host_of(agent)
        if host is not None:
            host.outlet.outbox.cut()
            self.run(agent, host.disconnect)

    def _set_route(self, agent: Agent, filter: str, route: FilterRoute | None, lost: bool) -> None:
        host = self._host_of(agent)
        assert host is not None, "routes change when somebody wants something, after the start"
        effective = host.custodian.on_route(filter, route, lost=lost)
        super()._set_route(agent, filter, effective, lost)

    def _set_destinations(
        self, agent: Agent, next_hops: Mapping[BrokerId, BrokerId | None]
    ) -> None:
        super()._set_destinations(agent, next_hops)
        host = self._host_of(agent)
        if host is not None:
            reached = {broker for broker, next_hop in next_hops.items() if next_hop is not None}
            host.custodian.on_destinations_moved(reached)

    def _reach_changed(self, agent: Agent, neighbour: BrokerId) -> None:
        super()._reach_changed(agent, neighbour)
        host = self._host_of(agent)
        if host is not None and neighbour in agent.reach:
            host.custodian.on_way_opened()

    def _hear(self, agent: Agent, message: ControlMessage) -> None:
        host = self._host_of(agent)
        if isinstance(message, RepairRequest) and host is not None:
            self.run(agent, host.custodian.on_request, message)
        else:
            super()._hear(agent, message)

    def _cover_changed(self, agent: Agent) -> None:
        super()._cover_changed(agent)
        host = self._host_of(agent)
        if host is not None:
            host.set_cover(frozenset(agent.data.cover))

    def _on_frame(self, agent: Agent, payload: bytes) -> None:
        host = self.hosts[agent.id]
        if host.outlet.doomed:
            return
        try:
            frame = unpack(payload)
        except DecodeError:
            self.fired["undecodable"] += 1
            return
        if frame.flags & REPAIR_FLAG:
            host.custodian.on_repair(frame)
            host.custodian.finish()
            return
        passage = None if frame.origin == agent.id else agent.data.admit(frame)
        if passage is None:
            self.fired["duplicate_suppressed"] += 1
            return
        if frame.flags:
            host.custodian.on_frame(frame, passage.local, first=passage.first)
            host.custodian.finish()
        counted = frame.flags and (passage.local or frame.flags & TAIL_FLAG)
        if passage.deliver and not counted:
            self._deliver(agent, passage)
        if not host.outlet.doomed:
            self._forward(agent, passage)

    def _deliver(self, agent: Agent, passage: Passage) -> None:
        publisher = data_client_id(agent.id)
        for number, topic, qos in publications_of(passage.frame):
            self.watcher.delivered(agent, number, topic)
            self.local[agent.id].publish(publisher, Message(topic, qos, number))
