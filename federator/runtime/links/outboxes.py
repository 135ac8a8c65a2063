"""Both ends of outboxes: those on our broker for other agents, and ours on neighbours' brokers.

An outbox is a topic by which an agent sends to one that it cannot dial (``protocol.links.outbox``).
The sender publishes there on its own broker; the receiver subscribes to it. Among the frames the
sender publishes marks with its position; the receiver answers a mark when everything before it is
handled, and so returns credit. ``KeptOutboxes`` is the sender's end, ``OwnOutboxes`` the
receiver's; an agent may have both.

This module sends and answers marks. The connections belong to ``NeighbourLinks``, and what waits
for credit to ``OutboxLink``.

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
"""Interval of marks to receivers that owe an answer: they make up for lost marks and answers."""


@dataclass(kw_only=True, eq=False, repr=False)
class KeptOutboxes:
    """The outboxes on our own broker, one for each agent that fetches our messages there.

    Args:
        self_id: Our broker's id.
        traffic: Encodes marks, and counts them.
        connections: All links; those with an ``OutboxLink`` lead to outboxes.

    Attributes:
        roll: The number of our last roll call, which every mark has.
    """

    self_id: BrokerId
    traffic: ControlTraffic
    connections: NeighbourLinks
    roll: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.connections.mark = self._send_mark

    def part(self) -> Part:
        return Part(messages={OutboxTaken: self.on_taken}, tasks={"outboxes": self.run})

    async def run(self) -> None:
        """Repeat marks to the receivers that have not confirmed everything, until cancelled."""
        while True:
            await beat(MARK_S)
            for outbox, data in self._outboxes():
                if data.credit.owed_packets:
                    self._send_mark(outbox)

    def on_neighbour(self, neighbour: BrokerId, *, reached: bool) -> None:
        """Begin or end sending to a neighbour; at the end, drop what waits for it."""
        for outbox, data in self._outboxes():
            if outbox.outbox_of != neighbour:
                continue
            outbox.reached = reached
            if reached:
                self._send_mark(outbox)
            else:
                data.discard()

    def on_taken(self, answer: OutboxTaken) -> None:
        """Handle a neighbour's answer to a mark of ours: it returns credit."""
        outbox = self.connections.behind_conn(answer.conn)
        if outbox is not None and outbox.outbox_of == answer.sender:
            assert isinstance(outbox.data, OutboxLink), "links to outboxes have one"
            outbox.data.on_taken(answer.sent_bytes, answer.sent_packets)

    def call_roll(self) -> None:
        """Have all agents with an outbox on our broker subscribe again: see ``RollCall``."""
        self.roll = max(wall_clock_ms(), self.roll + 1)
        for outbox, _ in self._outboxes():
            self._send_mark(outbox)

    def _outboxes(self) -> Iterator[tuple[NeighbourLink, OutboxLink]]:
        """The links that lead to outboxes, each with its connection for data."""
        for link in self.connections.all:
            if isinstance(link.data, OutboxLink):
                yield link, link.data

    def _send_mark(self, outbox: NeighbourLink) -> None:
        """Ask the receiver for its position, if our connection to the outbox is up."""
        data = outbox.data
        if isinstance(data, OutboxLink) and data.connected and outbox.conn is not None:
            mark = OutboxMark(self.self_id, outbox.conn, *data.credit.mark(), self.roll)
            self.traffic.send_by(data, mark, data.write_mark)


@dataclass(kw_only=True, eq=False, repr=False)
class OwnOutboxes:
    """Our outboxes on neighbours' brokers: passes on what arrives there, and answers marks.

    Args:
        federation: The federation's name.
        self_id: Our broker's id.
        traffic: Decodes marks, and sends the answers.
        on_messages: Handles control messages, as those from our own broker.
        on_frames: Handles frames, as those from our own broker.
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
        """Handle the messages of one socket read; ignore those on topics of no outbox of ours."""
        messages: list[PublishPacket] = []
        frames: list[bytes] = []
        for packet, _, _ in publishes:
            kind = self._kind_of.get(packet.topic)
            if kind == DATA:
                frames.append(packet.payload)
            elif kind == WINDOW:
                if frames:  # handle everything before the mark, then answer it
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
        """Answer a mark of ``neighbour``, and subscribe again if it calls the roll."""
        mark = self.traffic.receive(packet)
        if not isinstance(mark, OutboxMark) or mark.sender != self.traffic.neighbour_at(link):
            return
        taken = OutboxTaken(self.self_id, mark.conn, mark.sent_bytes, mark.sent_packets)
        self.traffic.send(neighbour.control, taken)
        if neighbour.rolls.asks(mark.roll, retained=False, now_ms=monotonic_ms()):
            for connection in neighbour.links:
                connection.subscribe_again()
