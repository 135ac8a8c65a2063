"""Outboxes at work: those that we keep for agents we cannot dial, and our own at neighbours.

The agent that keeps one publishes, now and then, a mark with its position; the agent that takes
from it answers. An agent may keep some, and take from others.

Source: docs/protocol.md 19.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from mqtt5 import PublishPacket

from federator.protocol.messages.codec import CONTROL_KINDS, WINDOW
from federator.protocol.messages.control import OutboxMark, OutboxTaken
from federator.protocol.messages.topics import DATA, outbox_topic
from federator.protocol.types import BrokerId
from federator.runtime.links.control_traffic import ControlTraffic
from federator.runtime.links.neighbour_links import NeighbourLink, NeighbourLinks
from federator.runtime.links.outbox_link import OutboxLink
from federator.runtime.mqtt.link import Inbound, MqttLink
from federator.runtime.mqtt.parts import Part
from federator.runtime.process.clocks import beat, monotonic_ms, wall_clock_ms

MARK_S: Final = 1.0
"""Between two marks that no other event calls for: they make up for lost ones."""


@dataclass(kw_only=True, eq=False, repr=False)
class KeptOutboxes:
    """The outboxes on our own broker, one for each agent that fetches our messages there."""

    self_id: BrokerId
    traffic: ControlTraffic
    connections: NeighbourLinks
    roll: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.connections.mark = self._mark

    def part(self) -> Part:
        return Part(messages={OutboxTaken: self.on_taken}, tasks={"outboxes": self.run})

    async def run(self) -> None:
        """Ask the receivers from time to time for their position, until cancelled."""
        while True:
            await beat(MARK_S)
            for neighbour, link in self._kept():
                if link.credit.owed_packets:
                    self._mark(neighbour)

    def on_neighbour(self, neighbour: BrokerId, *, reached: bool) -> None:
        """Begin or end sending to a neighbour; at the end, drop what waits for it."""
        for outbox, link in self._kept():
            if outbox.outbox_of != neighbour:
                continue
            outbox.reached = reached
            if reached:
                self._mark(outbox)
            else:
                link.discard()

    def on_taken(self, answer: OutboxTaken) -> None:
        """Handle a neighbour's answer to a mark of ours."""
        outbox = self.connections.behind_conn(answer.conn)
        if outbox is not None and outbox.outbox_of == answer.sender:
            assert isinstance(outbox.data, OutboxLink), "only such lead to an outbox"
            outbox.data.on_taken(answer.sent_bytes, answer.sent_packets)

    def call_roll(self) -> None:
        """Have all agents that take from our broker subscribe again: see ``RollCall``."""
        self.roll = max(wall_clock_ms(), self.roll + 1)
        for outbox, _ in self._kept():
            self._mark(outbox)

    def _kept(self) -> Iterator[tuple[NeighbourLink, OutboxLink]]:
        for neighbour in self.connections.all:
            if isinstance(neighbour.data, OutboxLink):
                yield neighbour, neighbour.data

    def _mark(self, neighbour: NeighbourLink) -> None:
        link = neighbour.data
        if isinstance(link, OutboxLink) and link.connected and neighbour.conn is not None:
            mark = OutboxMark(self.self_id, neighbour.conn, *link.credit.mark(), self.roll)
            self.traffic.send_by(link, mark, link.write_mark)


@dataclass(kw_only=True, eq=False, repr=False)
class OwnOutboxes:
    """Our outboxes on neighbours' brokers: hands received messages to their usual handlers.

    Args:
        on_messages: Handles control messages.
        on_frames: Handles frames.
    """

    federation: str
    self_id: BrokerId
    traffic: ControlTraffic
    on_messages: Callable[[Sequence[PublishPacket]], None]
    on_frames: Callable[[Sequence[bytes]], None]

    def __post_init__(self) -> None:
        kinds = (*CONTROL_KINDS, DATA)
        self._kind_of = {outbox_topic(self.federation, self.self_id, kind): kind for kind in kinds}

    def on_fetched(
        self, neighbour: NeighbourLink, link: MqttLink, publishes: Sequence[Inbound]
    ) -> None:
        """Handle the messages of one socket read; ignore those on other topics."""
        messages: list[PublishPacket] = []
        frames: list[bytes] = []
        for packet, _, _ in publishes:
            kind = self._kind_of.get(packet.topic)
            if kind == DATA:
                frames.append(packet.payload)
            elif kind == WINDOW:
                if frames:  # a mark is answered when everything before it is handled
                    self.on_frames(frames)
                    frames = []
                self._on_mark(neighbour, link, packet)
            elif kind is not None:
                messages.append(packet)
        if frames:
            self.on_frames(frames)
        if messages:
            self.on_messages(messages)

    def _on_mark(self, neighbour: NeighbourLink, link: MqttLink, packet: PublishPacket) -> None:
        mark = self.traffic.receive(packet)
        if not isinstance(mark, OutboxMark) or mark.sender != self.traffic.neighbour_at(link):
            return
        taken = OutboxTaken(self.self_id, mark.conn, mark.sent_bytes, mark.sent_packets)
        self.traffic.send(neighbour.control, taken)
        if neighbour.rolls.asks(mark.roll, retained=False, now_ms=monotonic_ms()):
            for each_link in neighbour.links:
                each_link.subscribe_again()
