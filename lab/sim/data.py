"""Drives the daemon's data plane of one simulated agent, as ``runtime.data.data_path`` does.

It tells the plane the time, wakes it up when it is due, and lays what it sends on the wires. A
publication is a real PUBLISH packet whose payload is its number in this world, so that parts
can follow it.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import mqtt5
from mqtt5 import PublishPacket

from federator.protocol.custody.ports import Disk
from federator.protocol.data.features import Features, Limits
from federator.protocol.data.plane import DataPlane
from federator.protocol.data.ports import DataLink
from federator.protocol.effects import FilterRoute, Notice
from federator.protocol.forwarding.bundles import frames_of
from federator.protocol.forwarding.forwarding import Forwarder
from federator.protocol.forwarding.frames import REPAIR_FLAG, Frame
from federator.protocol.forwarding.publications import Place, packets_in, topics_of
from federator.protocol.messages.control import Message, RepairRequest, TreeTorn
from federator.protocol.messages.destinations import names_tree
from federator.protocol.messages.steering import Plan
from federator.protocol.steering.edge_follower import EdgeFollower
from federator.protocol.steering.follower import PlanFollower
from federator.protocol.steering.plan_book import PlanBook
from federator.protocol.timers import earliest
from federator.protocol.trust.guard import Seals, overheard
from federator.protocol.types import BrokerId, Epoch, Millis, Now
from lab.sim.agenda import Agenda
from lab.sim.network import Agent, Connection
from lab.sim.wires import Wires

FEDERATION = "fed"

HOP_LIMIT = 255
"""The most a frame can say, so that checks see a loop before the limit hides it."""

EARLIER_AGENTS = 5
"""One of so many agents is of a release that knows no bundles."""

NUMBER_BYTES = 8
MUCH_BYTES = 1 << 30


class NeighbourLink:
    """A connection to a neighbour's broker, as the data plane sees it."""

    room = True
    queued_bytes = unacknowledged = waiting = 0
    packet_bytes_max = packet_bytes_sure = MUCH_BYTES

    def __init__(self, send: Callable[[bytes], bool], is_clogged: Callable[[], bool]) -> None:
        self._send = send  # takes the payload of a frame; says whether there is a connection
        self._is_clogged = is_clogged

    @property
    def idle(self) -> bool:
        return not self._is_clogged()

    @property
    def urgent_bytes(self) -> int:
        """Much, while the way is clogged."""
        return MUCH_BYTES if self._is_clogged() else 0

    def write_packets(
        self, parts: Sequence[bytes | memoryview], count: int, *, urgent: bool = False
    ) -> bool:
        [packet] = packets_in(b"".join(parts))
        return self._send(packet.payload)

    def try_packet(self, packet: bytes, on_too_long: Callable[[], None]) -> bool:
        raise AssertionError("no packet is too long")

    def publish_packet(self, packet: bytearray, packet_id_at: int, qos: int) -> bool:
        raise AssertionError("frames are published at QoS 0")

    def publish_run(self, run: bytes, places: Sequence[Place]) -> int:
        raise AssertionError("frames are published at QoS 0")


def publish_each(link: DataLink, run: bytes, places: Sequence[Place]) -> int:
    """Publish the packets at ``places`` of ``run`` one by one; how many were taken."""
    return sum(
        link.publish_packet(bytearray(run[start:end]), id_at - start, qos)
        for start, end, id_at, qos in places
    )


class LocalLink:
    """The data connection to a broker whose clients are imagined: what arrives is told."""

    room = idle = True
    queued_bytes = urgent_bytes = unacknowledged = waiting = 0

    def __init__(self, delivered: Callable[[PublishPacket], None]) -> None:
        self._delivered = delivered

    def write_packets(
        self, parts: Sequence[bytes | memoryview], count: int, *, urgent: bool = False
    ) -> bool:
        for packet in packets_in(b"".join(parts)):
            self._delivered(packet)
        return True

    def publish_packet(self, packet: bytearray, packet_id_at: int, qos: int) -> bool:
        return self.write_packets([bytes(packet)], 1)

    def publish_run(self, run: bytes, places: Sequence[Place]) -> int:
        return publish_each(self, run, places)


def packet_of(
    topic: str,
    number: int,
    qos: int,
    packet_id: int = 1,
    *,
    duplicate: bool = False,
    properties: Sequence[tuple[str, str]] = (),
) -> bytes:
    """The PUBLISH packet of a publication; ``packet_id`` is the broker's, at QoS 1."""
    payload, said = number.to_bytes(NUMBER_BYTES, "big"), list(properties)
    if not qos:
        return PublishPacket(topic, payload, user_properties=said).write()
    once = mqtt5.QoS.AT_LEAST_ONCE
    packet = PublishPacket(
        topic,
        payload,
        qos=once,
        packet_id=packet_id,
        duplicate=duplicate,
        user_properties=said,
    )
    return packet.write()


def number_of(packet: PublishPacket) -> int:
    """Which publication of this world a packet is."""
    return int.from_bytes(packet.payload, "big")


class DataWorld(Protocol):
    """What a data plane has around it."""

    agenda: Agenda
    wires: Wires
    fired: Counter[str]
    wall_offset_ms: Counter[BrokerId]

    def now_of(self, agent: Agent) -> Now:
        """The clocks of an agent's host."""

    def run(self, agent: Agent, call: Callable[..., None], *args: object) -> None:
        """Run ``call`` in the agent's process: never when it is dead, later when it is paused."""

    def noticed(self, notice: Notice) -> None:
        """An agent says something to its operator."""

    def was_delivered(self, agent: Agent, number: int, topic: str) -> None:
        """An agent published on its broker what came in a frame."""

    def was_sent(self, agent: Agent, target: BrokerId, frame: Frame) -> None:
        """An agent published a frame on another broker."""

    def say(self, agent: Agent, connection: Connection, message: Message) -> None:
        """An agent sends a control message over one of its connections."""

    def collects(self, agent: Agent, filters: frozenset[str]) -> None:
        """An agent says from now on that its clients' wishes for ``filters`` only collect."""

    def kept(self, agent: Agent, number: int) -> None:
        """An agent keeps a publication of its clients at the edge."""


@dataclass(slots=True)
class WakeUp:
    """Wakes a machine of an agent's process up when its next deadline is due."""

    _agent: Agent
    _world: DataWorld
    _next_deadline_ms: Callable[[], Millis | None]
    _on_time: Callable[[], None]
    _armed_at_ms: int | None = None

    def arm(self) -> None:
        deadline_ms = self._next_deadline_ms()
        if deadline_ms is None:
            return
        agenda = self._world.agenda
        when_ms = max(agenda.now_ms, deadline_ms - self._agent.clock_offset_ms)
        if self._armed_at_ms is None or when_ms < self._armed_at_ms:
            self._armed_at_ms = when_ms
            agenda.at(when_ms, self._world.run, self._agent, self._ring, when_ms)

    def _ring(self, when_ms: int) -> None:
        if self._armed_at_ms == when_ms:
            self._armed_at_ms = None
            self._on_time()


class DataPath:
    """The data plane of one agent, under the world's clock; ``link`` leads to its own broker."""

    def __init__(
        self,
        agent: Agent,
        world: DataWorld,
        epoch: Epoch,
        disk: Disk,
        link: DataLink,
        *,
        seals: Seals | None,
    ) -> None:
        self._agent = agent
        self._world = world
        self.plane = DataPlane(
            self_id=agent.id,
            epoch=epoch,
            federation=FEDERATION,
            forwarder=Forwarder(),
            disk=disk,
            outlet=self,
            now=world.now_of(agent),
            limits=Limits(hop_limit=HOP_LIMIT),
            features=Features(link=link, seals=seals),
        )
        agent.data = self.plane
        self._collected = [(0, frozenset[str]())]  # since when which filters
        routing, meshes = agent.node.topic_routing, agent.node.meshes
        self.edge = EdgeFollower(
            keep=self.plane.keep,
            collect=self._collect,
            note=self.tell,
            asks_straight=routing.wants,
            asks_in_mesh=meshes.wants,
            allowed=True,
        )
        book = PlanBook(FEDERATION, agent.id)
        self._follower = PlanFollower(
            book, self.plane, agent.id, self._say_torn, self.tell, self.edge.follow
        )
        self.plane.report_torn(self._follower)
        wake_up = WakeUp(agent, world, self._next_deadline_ms, self._on_time)
        self.arm = wake_up.arm

    # --- what the control plane says ---

    def set_route(self, filter: str, route: FilterRoute | None, *, lost: bool) -> None:
        """Replace the route of ``filter``; see ``DataPlane``. ``arm`` comes after all of them."""
        self.plane.set_route(filter, route, self._now, lost=lost)

    def set_destinations(self, next_hops: Mapping[BrokerId, BrokerId | None]) -> None:
        """Frames for these brokers go by way of these next hops; see ``DataPlane``."""
        self.plane.set_destinations(next_hops, self._now)
        self.arm()

    def reach(self, neighbour: BrokerId) -> None:
        link = None
        if neighbour in self._agent.reach:
            clogged = partial(self._is_clogged, neighbour)
            link = NeighbourLink(partial(self._carry, neighbour), clogged)
        takes_bundles = neighbour % EARLIER_AGENTS > 0
        self.plane.reach(neighbour, link, self._now, takes_bundles=takes_bundles)
        self.arm()

    def on_request(self, request: RepairRequest) -> None:
        self.plane.custody.on_request(request, self._now)
        self.arm()

    def tend(self) -> bool:
        """Bound what custody keeps; whether routes changed."""
        changed = self.plane.tend(self._now)
        self.arm()
        return changed

    # --- what steers ---

    def on_plan(self, plan: Plan) -> None:
        self._follower.on_plan(plan, self._now)
        self.arm()

    def collected(self, *, since_ms: int) -> frozenset[str]:
        """What wishes were said to collect, now or at any time since then."""
        said = self._collected
        before = [at for at, (at_ms, _) in enumerate(said) if at_ms <= since_ms]
        return frozenset().union(*(filters for _, filters in said[max(before, default=0) :]))

    def _collect(self, filters: frozenset[str]) -> None:
        self._collected.append((self._world.agenda.now_ms, filters))
        self._world.collects(self._agent, filters)

    def doubt(self, in_doubt: bool) -> None:
        """It is not known for sure what clients of the broker want, or it is again."""
        self.edge.doubt(in_doubt, self._now)
        self.arm()

    def on_torn(self, told: TreeTorn) -> None:
        """A neighbour says that a tree does not hold there."""
        self._follower.on_message(told, self._now)
        self.arm()

    # --- what comes in ---

    def read(self, run: bytes) -> None:
        publishes = [
            (packet, start, end)
            for packet, (start, end, _) in zip(packets_in(run), topics_of(run), strict=True)
        ]
        for packet, _, _ in publishes:
            if self.plane.forwarder.keeps(packet.topic):
                self._world.kept(self._agent, number_of(packet))
        self.plane.on_publishes(memoryview(run), publishes, self._now)
        self.arm()

    def on_frame(self, payload: bytes) -> None:
        if self._agent.doomed:
            return
        counters, fired = self.plane.counters, self._world.fired
        malformed, repeated = counters.malformed_frames, counters.duplicate_frames
        packet = PublishPacket(self.plane.data_topic, payload)
        self.plane.on_publishes(memoryview(b""), [(packet, 0, 0)], self._now)
        if counters.malformed_frames > malformed:
            fired["undecodable"] += 1
        if counters.duplicate_frames > repeated:
            fired["duplicate_suppressed"] += 1
        self.arm()

    # --- what goes out; this is the plane's outlet, too ---

    def tell(self, notice: Notice) -> None:
        self._world.noticed(notice)

    def ask(self, neighbour: BrokerId, request: RepairRequest) -> None:
        connection = self._agent.connection_to(neighbour)
        if connection is not None and not self._agent.doomed:
            self._world.fired["repair asked"] += 1
            self._world.say(self._agent, connection, request)

    def _say_torn(self, neighbour: BrokerId, told: TreeTorn) -> None:
        connection = self._agent.connection_to(neighbour)
        if connection is not None and not self._agent.doomed:
            self._world.fired["tree torn"] += 1
            self._world.say(self._agent, connection, told)

    def _carry(self, neighbour: BrokerId, payload: bytes) -> bool:
        """Send a frame to a neighbour; whether there is a connection."""
        world, connection = self._world, self._agent.connection_to(neighbour)
        if connection is None or self._agent.doomed:
            return False
        _, inside = overheard(payload)
        frames = frames_of(inside or b"")
        world.fired["bundle sent"] += len(frames) > 1
        for frame, _ in frames:
            if frame.flags & REPAIR_FLAG:
                world.fired["repair sent"] += 1
                continue
            if names_tree(frame.keys):
                world.fired["planned frame"] += 1
            world.was_sent(self._agent, connection.path.target, frame)
        world.wires.transmit(connection, "data", payload)
        return True

    def _is_clogged(self, neighbour: BrokerId) -> bool:
        connection = self._agent.connection_to(neighbour)
        now_ms = self._world.agenda.now_ms
        return connection is not None and connection.path.clogged_until_ms > now_ms

    # --- time ---

    @property
    def _now(self) -> Now:
        return self._world.now_of(self._agent)

    def _next_deadline_ms(self) -> Millis | None:
        return earliest(self.plane.next_deadline_ms(), self._follower.due_ms)

    def _on_time(self) -> None:
        self.plane.on_time(self._now)
        self._follower.on_time(self._now)
        self.arm()
