"""Rules of links, where frames cross them: a gate around each link that has any.

A frame's body is nobody's business on its way, so a link without rules is not touched. On one with
rules frames are opened, and publications that may not cross are taken out: of what we send, in the
gate around the connection; of what arrives, before the data path sees it. The label stays.

Source: docs/protocol.md, section 11.
"""

from collections.abc import Callable, Mapping, Sequence

import mqtt5
import msgspec
from mqtt5 import PublishPacket

from federator.errors import DecodeError
from federator.protocol.frames import Frame, pack, unpack
from federator.protocol.publications import packets_of
from federator.protocol.rules import LinkRules, Remembered
from federator.protocol.types import BrokerId
from federator.runtime.data_path import DataLink
from federator.runtime.mqtt_wire import Inbound, packet_id_at

Ask = Callable[[bytes], bool]


class LinkGates:
    """The gates of one agent.

    Args:
        data_topic: Where frames travel.
        rules: By neighbour.
        others: For neighbours without rules of their own.

    Attributes:
        active: Some link has a gate.
        withheld_in: Publications that a neighbour sent and rules stopped.
        withheld_out: Publications that rules kept from a neighbour, one per neighbour.
    """

    def __init__(
        self, data_topic: str, rules: Mapping[BrokerId, LinkRules], others: LinkRules
    ) -> None:
        self.withheld_in = 0
        self.withheld_out = 0
        self._data_topic = data_topic
        self._rules = dict(rules)
        self._others = others
        self._lets_in: dict[LinkRules, Ask] = {}
        self._lets_out: dict[LinkRules, Ask] = {}
        for each in (*self._rules.values(), others):
            self._lets_in[each] = Remembered(each.lets_in)
            self._lets_out[each] = Remembered(each.lets_out)
        self.active = not all(each.stops_nothing for each in self._lets_in)

    def rules_of(self, neighbour: BrokerId) -> LinkRules:
        """The rules of the link to ``neighbour``."""
        return self._rules.get(neighbour, self._others)

    def around(self, neighbour: BrokerId, link: DataLink | None) -> DataLink | None:
        """``link`` itself, or a gate around it when ``neighbour`` has rules."""
        rules = self.rules_of(neighbour)
        if link is None or rules.stops_nothing:
            return link
        return _Gate(self, link, self._lets_out[rules], self._data_topic)

    def incoming(
        self, chunk: memoryview, publishes: Sequence[Inbound]
    ) -> tuple[memoryview, Sequence[Inbound]]:
        """What one read brought, without publications that may not come from their sender."""
        if not any(packet.topic == self._data_topic for packet, _, _ in publishes):
            return chunk, publishes
        kept: list[Inbound] = []
        parts: list[bytes | memoryview] = []
        at = 0
        for packet, start, end in publishes:
            wire: bytes | memoryview = chunk[start:end]
            if packet.topic == self._data_topic:
                let_in = self._let_in(packet)
                if let_in is None:
                    continue
                if let_in is not packet:
                    packet = let_in
                    wire = packet.write()
            parts.append(wire)
            kept.append((packet, at, at + len(wire)))
            at += len(wire)
        return memoryview(b"".join(parts)), kept

    def _let_in(self, packet: PublishPacket) -> PublishPacket | None:
        """``packet`` with less in its frame; ``None`` when nothing is left."""
        try:
            frame = unpack(packet.payload)
        except DecodeError:
            return packet  # the data path complains
        rules = self.rules_of(frame.sender)
        if rules.stops_nothing:
            return packet
        sifted = sift(frame, self._lets_in[rules])
        if sifted is frame:
            return packet
        self.withheld_in += frame.publications - (sifted.publications if sifted else 0)
        if sifted is None:
            return None
        return PublishPacket(packet.topic, pack(sifted), qos=packet.qos, packet_id=packet.packet_id)


class _Gate:
    """A connection to a neighbour with rules: a ``DataLink``."""

    def __init__(self, gates: LinkGates, link: DataLink, lets_out: Ask, data_topic: str) -> None:
        self._gates = gates
        self._link = link
        self._lets_out = lets_out
        self._data_topic = data_topic

    def write_packets(self, parts: Sequence[bytes | memoryview], count: int) -> bool:
        """Write a run of ready-made QoS 0 PUBLISH packets, frames among them sifted."""
        run = memoryview(b"".join(parts))
        kept = [each for each in map(self._sift, _read_all(run)) if each is not None]
        return not kept or self._link.write_packets(kept, len(kept))

    def publish_packet(self, packet: bytearray, packet_id_at_: int, qos: int) -> bool:
        """Publish a ready-made QoS 1 or 2 packet, sifted when it is a frame."""
        packet[packet_id_at_ : packet_id_at_ + 2] = b"\0\1"  # the codec wants one
        ((publish, _),) = _read_all(memoryview(packet))
        sifted = self._sift((publish, memoryview(packet)))
        if sifted is None:
            return True
        ready = bytearray(sifted)
        return self._link.publish_packet(ready, packet_id_at(ready), qos)

    def _sift(self, read: tuple[PublishPacket, memoryview]) -> bytes | memoryview | None:
        publish, wire = read
        if publish.topic != self._data_topic:
            return wire
        frame = unpack(publish.payload)
        sifted = sift(frame, self._lets_out)
        if sifted is frame:
            return wire
        self._gates.withheld_out += frame.publications - (sifted.publications if sifted else 0)
        if sifted is None:
            return None
        return PublishPacket(
            publish.topic, pack(sifted), qos=publish.qos, packet_id=publish.packet_id
        ).write()


def sift(frame: Frame, may_cross: Ask) -> Frame | None:
    """``frame`` without publications that may not cross; itself when all may.

    Returns:
        ``None`` when nothing is left. A body that cannot be read has nothing that may cross.
    """
    try:
        packets = packets_of(frame.body)
    except DecodeError:
        return None
    kept = [frame.body[start:end] for start, end, topic in packets if may_cross(topic)]
    if len(kept) == len(packets):
        return frame
    if not kept:
        return None
    body = memoryview(b"".join(kept))
    return msgspec.structs.replace(frame, publications=len(kept), body=body)


def _read_all(run: memoryview) -> list[tuple[PublishPacket, memoryview]]:
    found = []
    at = 0
    while at < len(run):
        packet, size = mqtt5.read(run[at:])
        assert isinstance(packet, PublishPacket), "the data path writes PUBLISHes"
        found.append((packet, run[at : at + size]))
        at += size
    return found
