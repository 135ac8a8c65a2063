"""The two connections to our own broker, control and data: who takes what they bring.

Source: docs/ARCHITECTURE.md, "Connections"; docs/protocol.md 8; docs/security.md, "Threats and
answers".
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mqtt5 import PublishPacket

from federator.protocol.forwarding.publications import QOS_BITS
from federator.runtime.agent.parts import Dispatch
from federator.runtime.agent.presence import OwnBrokerPresence
from federator.runtime.custody.gateway_marks import GatewayMarks
from federator.runtime.data.busy_poll import BusyPoll
from federator.runtime.data.cover_subscriber import CoverSubscriber
from federator.runtime.data.data_path import DataPath
from federator.runtime.discovery.service import Discovery
from federator.runtime.links.control_traffic import ControlTraffic
from federator.runtime.loops.watch import LoopWatch
from federator.runtime.mqtt.inbox import Inbox
from federator.runtime.mqtt.link import Inbound, LinkObserver, MqttLink
from federator.runtime.retained.retained import Retained

SYS = "$SYS/"
"""What the broker tells of itself: runs of log lines, mostly."""


@dataclass(eq=False, repr=False)
class ControlConnection(LinkObserver):
    """Everything comes over the control connection that no client published.

    Other agents' messages, the broker's log and ``$SYS``, operators' orders, and what we say to
    ourselves to learn when it is through: the table of parts (``parts``) says who takes it.
    """

    dispatch: Dispatch
    traffic: ControlTraffic
    discovery: Discovery
    loops: LoopWatch
    presence: OwnBrokerPresence

    def __post_init__(self) -> None:
        self._inbox = Inbox(self._take)

    def on_up(self, link: MqttLink, session_present: bool) -> None:
        """The broker accepted us."""
        ours = session_present and not self.presence.doubts
        self.discovery.on_up(link, session_present=ours)
        if not ours:
            self.loops.on_new_session()

    def on_subscribed(self, link: MqttLink) -> None:
        """The broker granted our subscriptions."""
        self.presence.update()

    def on_down(self, link: MqttLink, reason: str) -> None:
        """The connection ended."""
        self.discovery.on_down()
        self.presence.on_lost(link)

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        """Hand on what one socket read brought."""
        for packet, _, _ in publishes:
            if packet.packet_id is not None:
                self.discovery.on_packet(packet.packet_id, duplicate=packet.duplicate)
            if not packet.topic.startswith(SYS):
                self.discovery.tell_changes()  # who takes it may count on what lines before it want
            if not self.traffic.carries(packet.topic):
                self.dispatch.on_publish(packet)
            elif not self._inbox.put(packet):
                self.traffic.refuse(packet.topic)
        self.discovery.tell_changes()
        self._inbox.work()

    def hear(self, said: Sequence[PublishPacket]) -> None:
        """Take control messages that neighbours published for us on their own brokers."""
        for packet in said:
            if not self._inbox.put(packet):
                self.traffic.refuse(packet.topic)
        self._inbox.work()

    def _take(self, packet: PublishPacket) -> None:
        message = self.traffic.receive(packet)
        if message is not None:
            self.dispatch.on_message(message)


@dataclass(kw_only=True, eq=False, repr=False)
class DataConnection(LinkObserver):
    """Over the data connection comes what clients published, and frames of other agents.

    What one socket read brings passes in this order: second copies while the cover changes,
    bridges' loops, then by ``enter`` renames and the data path. Only then is our broker told that
    it is ours.
    """

    busy_poll: BusyPoll
    cover: CoverSubscriber
    data_path: DataPath
    enter: Callable[[memoryview, Sequence[Inbound]], None]
    loops: LoopWatch
    marks: GatewayMarks
    presence: OwnBrokerPresence
    retained: Retained | None

    def __post_init__(self) -> None:
        self._held: list[tuple[MqttLink, memoryview, list[Inbound]]] | None = None
        self._is_cut: Callable[[PublishPacket], bool] | None = None
        self._is_parted = False

    def await_cut(self, is_cut: Callable[[PublishPacket], bool]) -> None:
        """Leave what clients publish to another session of ours, until the mark comes that parts
        both; what comes behind it waits until ``release``.
        """
        self._is_cut, self._held = is_cut, []

    def hold(self) -> None:
        """Let what clients publish wait until ``release``; our broker keeps it for us so long."""
        self._held = []

    def release(self) -> None:
        """Take what waited, and all that comes from now on."""
        held, self._held = self._held, None
        if self._is_cut is not None:
            self._is_cut = None
            self.data_path.on_data_up(session_present=False)
        for link, chunk, publishes in held or ():
            self.on_publishes(link, chunk, publishes)

    def on_up(self, link: MqttLink, session_present: bool) -> None:
        """The broker accepted us."""
        self.cover.on_up(session_present=session_present)
        if self._is_cut is None:
            self.data_path.on_data_up(session_present=session_present)

    def on_subscribed(self, link: MqttLink) -> None:
        """The broker granted our subscriptions."""
        self.presence.update()

    def on_down(self, link: MqttLink, reason: str) -> None:
        """The connection ended."""
        if self._held is not None:
            self._held.clear()  # it comes again
        self.cover.on_down()
        self.marks.on_down()
        if self._is_cut is None:
            self.data_path.on_data_down()
        if self.retained is not None:
            self.retained.on_data_down()
        self.presence.on_lost(link)

    def on_refused(self, packet: bytes | bytearray) -> None:
        """A value that our broker refused is not there: no client deleted it."""
        if self.retained is not None:
            asyncio.get_running_loop().call_soon(self.retained.refused, packet)  # once it is noted

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        """Take what one socket read brought."""
        if self._is_cut is not None and self._held is not None:
            self._part(link, chunk, publishes, self._is_cut, self._held)
            return
        if self._held is not None:
            frames = self.data_path.data_topic
            clients = [each for each in publishes if each[0].topic != frames]
            self._held.append((link, memoryview(bytes(chunk)), clients))
            publishes = [each for each in publishes if each[0].topic == frames]
        packet_ids = [
            (packet.packet_id or 0, (first & QOS_BITS) >> 1)
            for packet, start, _ in publishes
            if (first := chunk[start]) & QOS_BITS
        ]
        if packet_ids:
            self.marks.note(publishes)
        self.take(chunk, publishes)
        if packet_ids:
            self.data_path.acknowledge(link, packet_ids)

    def _part(
        self,
        link: MqttLink,
        chunk: memoryview,
        publishes: list[Inbound],
        is_cut: Callable[[PublishPacket], bool],
        held: list[tuple[MqttLink, memoryview, list[Inbound]]],
    ) -> None:
        """Hold what clients published behind the cut; another session has what is before it."""
        ours: list[Inbound] = []
        behind: list[Inbound] = []
        ids: list[tuple[int, int]] = []
        for each in publishes:
            packet = each[0]
            if packet.topic.startswith("$"):
                ours.append(each)
                self._is_parted |= packet.packet_id is not None and is_cut(packet)
            elif self._is_parted:
                behind.append(each)
                continue
            if packet.packet_id is not None:
                ids.append((packet.packet_id, int(packet.qos)))
        if behind:
            held.append((link, memoryview(bytes(chunk)), behind))
        self.take(chunk, ours)
        link.acknowledge(ids, session_number=link.session_number)

    def take(self, chunk: memoryview, publishes: Sequence[Inbound]) -> None:
        """Take what one socket read brought, without telling our broker that it is ours."""
        self.busy_poll.on_data()
        if self.cover.sorting:
            chunk, publishes = self.cover.once(chunk, publishes)
        if self.loops.looks():
            chunk, publishes = self.loops.sift(chunk, publishes)
        self.enter(chunk, publishes)
