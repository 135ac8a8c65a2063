"""The two connections to our own broker, control and data, and the handlers of their messages.

Source: docs/ARCHITECTURE.md, "Connections"; docs/protocol.md 8; docs/security.md, "Threats and
answers".
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mqtt5 import PublishPacket

from federator.protocol.forwarding.publications import QOS_BITS
from federator.runtime.agent.data_parts import DataParts
from federator.runtime.agent.presence import OwnBrokerPresence
from federator.runtime.data.busy_poll import BusyPoll
from federator.runtime.discovery.service import Discovery
from federator.runtime.links.control_traffic import ControlTraffic
from federator.runtime.loops.watch import LoopWatch
from federator.runtime.mqtt.inbox import Inbox
from federator.runtime.mqtt.link import Inbound, LinkObserver, MqttLink
from federator.runtime.mqtt.parts import Dispatch

LINES_PER_TURN = 64
"""Messages of the control connection, log lines mostly, that one turn of the loop takes: each may
be a new filter, which costs the more the more filters overlap it."""

SYS = "$SYS/"
"""What the broker reports of itself: log lines, mostly."""


@dataclass(eq=False, repr=False)
class ControlConnection(LinkObserver):
    """The control connection brings everything that no client published.

    Other agents' messages, the broker's log and ``$SYS``, operators' orders, and marks that we send
    to ourselves: the table of parts (``parts``) names the handler of each.
    """

    dispatch: Dispatch
    traffic: ControlTraffic
    discovery: Discovery
    loops: LoopWatch
    presence: OwnBrokerPresence

    def __post_init__(self) -> None:
        self._inbox = Inbox(self._take)

    def share_of_turn(self, publishes: Sequence[Inbound]) -> int:
        return min(len(publishes), LINES_PER_TURN)

    def on_up(self, link: MqttLink, session_present: bool) -> None:
        ours = session_present and not self.presence.doubts
        self.discovery.on_up(link, session_present=ours)
        if not ours:
            self.loops.on_new_session()

    def on_subscribed(self, link: MqttLink) -> None:
        self.presence.update()

    def on_down(self, link: MqttLink, reason: str) -> None:
        self.discovery.on_down()
        self.presence.on_lost(link)

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        for packet, _, _ in publishes:
            if packet.packet_id is not None:
                self.discovery.on_packet(packet.packet_id, duplicate=packet.duplicate)
            if not packet.topic.startswith(SYS):
                # The handler may rely on interest from earlier log lines.
                self.discovery.tell_changes()
            if not self.traffic.carries(packet.topic):
                self.dispatch.on_publish(packet)
            elif not self._inbox.put(packet):
                self.traffic.refuse(packet.topic)
        self.discovery.tell_changes()
        self._inbox.work()

    def hear(self, packets: Sequence[PublishPacket]) -> None:
        """Handle control messages that neighbours published for us on their own brokers."""
        for packet in packets:
            if not self._inbox.put(packet):
                self.traffic.refuse(packet.topic)
        self._inbox.work()

    def _take(self, packet: PublishPacket) -> None:
        message = self.traffic.receive(packet)
        if message is not None:
            self.dispatch.on_message(message)


@dataclass(eq=False, repr=False)
class DataConnection(LinkObserver):
    """The data connection brings clients' publications, and frames of other agents.

    The publications of one socket read pass in this order: removal of second copies while the cover
    changes, bridges' loops, then ``enter``: renames and the data path. Only then are they
    acknowledged.
    """

    data: DataParts
    presence: OwnBrokerPresence

    def __post_init__(self) -> None:
        self.data_path = self.data.path
        self._busy_poll = BusyPoll(self.data.settings.data.busy_poll_us)
        self._held: list[tuple[MqttLink, memoryview, list[Inbound]]] | None = None
        self._is_cut: Callable[[PublishPacket], bool] | None = None
        self._is_parted = False

    def has_spare_time(self) -> bool:
        return self.data.spare_time()

    def share_of_turn(self, publishes: Sequence[Inbound]) -> int:
        return self.data_path.share_of_turn(publishes)

    def await_cut(self, is_cut: Callable[[PublishPacket], bool]) -> None:
        """Leave clients' publications to another session of ours until the separating mark.

        Hold those behind the mark until ``release``.
        """
        self._is_cut, self._held = is_cut, []

    def hold(self) -> None:
        """Hold clients' publications until ``release``; our broker keeps them for us that long."""
        self._held = []

    def release(self) -> None:
        """Handle what was held, and everything from now on."""
        held, self._held = self._held, None
        if self._is_cut is not None:
            self._is_cut = None
            self.data_path.on_data_up(session_present=False)
        for link, chunk, publishes in held or ():
            self.on_publishes(link, chunk, publishes)

    def on_up(self, link: MqttLink, session_present: bool) -> None:
        self.data.cover.on_up(session_present=session_present)
        if self._is_cut is None:
            self.data_path.on_data_up(session_present=session_present)

    def on_subscribed(self, link: MqttLink) -> None:
        self.presence.update()

    def on_down(self, link: MqttLink, reason: str) -> None:
        if self._held is not None:
            self._held.clear()  # the broker sends it again
        self.data.cover.on_down()
        self.data.marks.on_down()
        if self._is_cut is None:
            self.data_path.on_data_down()
        if self.data.retained is not None:
            self.data.retained.on_data_down()
        self.presence.on_lost(link)

    def on_refused(self, packet: bytes | bytearray) -> None:
        """Our broker refused a retained value: its absence is no client's delete."""
        if (retained := self.data.retained) is not None:
            asyncio.get_running_loop().call_soon(retained.refused, packet)  # after it is noted

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        if self._is_cut is not None and self._held is not None:
            self._part(link, chunk, publishes, self._is_cut, self._held)
            return
        if self._held is not None:
            frames = self.data_path.data_topic
            clients = [inbound for inbound in publishes if inbound[0].topic != frames]
            self._held.append((link, memoryview(bytes(chunk)), clients))
            publishes = [inbound for inbound in publishes if inbound[0].topic == frames]
        packet_ids = [
            (packet.packet_id or 0, (first & QOS_BITS) >> 1)
            for packet, start, _ in publishes
            if (first := chunk[start]) & QOS_BITS
        ]
        if packet_ids:
            self.data.marks.note(publishes)
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
        """Hold clients' publications behind the cut; another session has those before it."""
        ours: list[Inbound] = []
        behind: list[Inbound] = []
        ids: list[tuple[int, int]] = []
        for inbound in publishes:
            packet = inbound[0]
            if packet.topic.startswith("$"):
                ours.append(inbound)
                self._is_parted |= packet.packet_id is not None and is_cut(packet)
            elif self._is_parted:
                behind.append(inbound)
                continue
            if packet.packet_id is not None:
                ids.append((packet.packet_id, int(packet.qos)))
        if behind:
            held.append((link, memoryview(bytes(chunk)), behind))
        self.take(chunk, ours)
        link.acknowledge(ids, session_number=link.session_number)

    def take(self, chunk: memoryview, publishes: Sequence[Inbound]) -> None:
        """Handle the publications of one socket read without acknowledging them."""
        self._busy_poll.on_data()
        if self.data.cover.sorting:
            chunk, publishes = self.data.cover.once(chunk, publishes)
        if self.data.loops.looks():
            chunk, publishes = self.data.loops.sift(chunk, publishes)
        self.data.enter(chunk, publishes)
