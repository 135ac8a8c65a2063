"""Runs of PUBLISH packets, as bytes: where each begins, and whether a broker will accept them.

A frame's body is written to a broker's socket as it came. After one wrong byte, or a topic that
clients may not publish, the broker closes our connection. So the destination checks every packet
first, without building objects: the lengths, the topic (most are cached) and, where there are any,
the properties. It is the conveyor belt at the customs, not the laboratory.

Source: OASIS MQTT 5.0, sections 1.5 (data types), 2.1 (fixed header), 3.3 (PUBLISH).
"""

from collections.abc import Iterable, Iterator, Sequence

import mqtt5
from mqtt5 import PublishPacket

from federator.errors import DecodeError
from federator.protocol.filters import LEVELS_MAX, unwelcome_in

RETAIN_BIT, QOS_BITS, DUP_BIT = 0x01, 0x06, 0x08
"""Bits of the first byte of a PUBLISH."""

KNOWN_TOPICS_MAX = 65_536
KNOWN_TOPIC_BYTES_MAX = 256  # longer topics are checked every time

Place = tuple[int, int, int, int]
"""Where a packet begins and ends, the position of its packet identifier, and its QoS."""

Inbound = tuple[PublishPacket, int, int]
"""A PUBLISH and its bytes' place in the chunk: ``chunk[start:end]``."""

_NO_PUBLISH = 3
# By first byte: the QoS of the PUBLISH that begins so. DUP without QoS and QoS 3 do not exist.
_QOS_OF = bytes(
    (byte & 6) >> 1 if byte & 0xF0 == 0x30 and byte & 0x0E != 0x08 else _NO_PUBLISH
    for byte in range(256)
)

EXPIRY = 0x02
"""The property with the lifetime of a message."""

# Properties of a PUBLISH that may travel. Subscription identifiers and topic aliases belong to one
# connection.
FIXED_BYTES = {0x01: 1, EXPIRY: 4}
"""Payload format and expiry: the size of their value."""

LENGTHS = {0x03: 1, 0x08: 1, 0x09: 1, 0x26: 2}
"""Content type, response topic, correlation data, user property: how many values, each after a
2-byte length, the property has.
"""

_BINARY = 0x09  # the only one that is not text


class RunChecker:
    """Checks runs, and caches up to ``KNOWN_TOPICS_MAX`` valid topics."""

    def __init__(self) -> None:
        self.retained = False  # some publication of the last run is retained
        self.properties = False  # some publication of the last run has properties
        self._seen: set[bytes] = set()

    def check(self, run: bytes, *, acknowledged: bool, publications: int) -> list[Place]:
        """The places of the packets of ``run``; none for QoS 0, where they are not needed.

        Args:
            run: PUBLISH packets, back to back.
            acknowledged: All must have QoS 1 or 2; otherwise all must have QoS 0.
            publications: How many there must be.

        Raises:
            DecodeError: A broker would not accept the run.
        """
        known_topics, qos_of = self._seen, _QOS_OF
        qos_min, qos_max = (1, 2) if acknowledged else (0, 0)
        places: list[Place] = []
        at, size, count, first_bytes, properties = 0, len(run), 0, 0, False
        try:
            while at < size:
                first_byte = run[at]
                first_bytes |= first_byte
                qos = qos_of[first_byte]
                if not qos_min <= qos <= qos_max:
                    raise DecodeError(f"run: a packet begins with {first_byte:#04x}")
                length, head = run[at + 1], at + 2
                if length > 127:
                    length, head = read_variable_byte_integer(run, at + 1)
                end = head + length
                topic_end = head + 2 + (run[head] << 8 | run[head + 1])
                properties_at = topic_end + 2 if qos else topic_end
                if properties_at >= end or end > size:
                    raise DecodeError("run: a packet is too short for its topic")
                topic = run[head + 2 : topic_end]
                if topic not in known_topics:
                    self._check_topic(topic)
                if run[properties_at]:
                    properties = True
                    _check_properties(run, properties_at, end)
                if qos:
                    places.append((at, end, topic_end, qos))
                count += 1
                at = end
        except IndexError as error:
            raise DecodeError("run: ends inside a packet") from error
        if count != publications:
            raise DecodeError(f"run: {count} publications, {publications} wanted")
        self.retained, self.properties = first_bytes & 1 > 0, properties
        return places

    def _check_topic(self, topic: bytes) -> None:
        text = _text(topic)
        if not text or text.startswith("$") or "#" in text or "+" in text:
            raise DecodeError(f"run: topic {text!a} may not be published by us")
        if text.count("/") >= LEVELS_MAX:
            raise DecodeError(f"run: topic with more than {LEVELS_MAX} levels")
        if len(topic) <= KNOWN_TOPIC_BYTES_MAX:
            if len(self._seen) >= KNOWN_TOPICS_MAX:
                self._seen.clear()
            self._seen.add(topic)


def topics_of(run: bytes | memoryview) -> list[tuple[int, int, bytes]]:
    """Where each packet of ``run`` begins and ends, and its topic. Nothing else is checked.

    Raises:
        DecodeError: ``run`` is no run of PUBLISH packets.
    """
    topics: list[tuple[int, int, bytes]] = []
    at, size = 0, len(run)
    try:
        while at < size:
            if _QOS_OF[run[at]] == _NO_PUBLISH:
                raise DecodeError(f"run: a packet begins with {run[at]:#04x}")
            length, head = read_variable_byte_integer(run, at + 1)
            end = head + length
            topic_end = head + 2 + (run[head] << 8 | run[head + 1])
            if topic_end >= end or end > size:
                raise DecodeError("run: a packet is too short for its topic")
            topics.append((at, end, bytes(run[head + 2 : topic_end])))
            at = end
    except IndexError as error:
        raise DecodeError("run: ends inside a packet") from error
    return topics


def packets_in(run: bytes | memoryview) -> Iterator[PublishPacket]:
    """The parsed packets of a run that was found well-formed."""
    rest = memoryview(run)
    while rest:
        packet, size = mqtt5.read(rest)
        assert isinstance(packet, PublishPacket), "a run holds PUBLISH packets only"
        yield packet
        rest = rest[size:]


def joined(
    packets: Iterable[tuple[PublishPacket, bytes | memoryview]],
) -> tuple[memoryview, list[tuple[PublishPacket, int, int]]]:
    """``packets`` and their bytes, as if one read had brought them: each packet with its place."""
    publishes: list[tuple[PublishPacket, int, int]] = []
    parts: list[bytes | memoryview] = []
    at = 0
    for packet, wire in packets:
        parts.append(wire)
        publishes.append((packet, at, at + len(wire)))
        at += len(wire)
    return memoryview(b"".join(parts)), publishes


def remade(
    packet: PublishPacket,
    *,
    topic: str | None = None,
    response_topic: str | None = None,
    user_properties: list[tuple[str, str]] | None = None,
) -> PublishPacket:
    """A copy of ``packet`` with changes, without Subscription Identifiers (of one connection)."""
    return PublishPacket(
        topic or packet.topic,
        packet.payload,
        qos=packet.qos,
        retain=packet.retain,
        packet_id=packet.packet_id,
        duplicate=packet.duplicate,
        payload_format_indicator=packet.payload_format_indicator,
        message_expiry_interval=packet.message_expiry_interval,
        content_type=packet.content_type,
        response_topic=response_topic or packet.response_topic,
        correlation_data=packet.correlation_data,
        user_properties=packet.user_properties if user_properties is None else user_properties,
    )


def qos_of(packet: bytes | bytearray | memoryview) -> int:
    return (packet[0] & QOS_BITS) >> 1


def not_retained(packet: memoryview) -> bytes | memoryview:
    """``packet`` without the retain flag."""
    if packet[0] & RETAIN_BIT:
        return bytes((packet[0] & ~RETAIN_BIT,)) + bytes(packet[1:])
    return packet


def variable_byte_integer(value: int) -> bytes:
    """The wire form of a length below 2**28."""
    if 127 < value < 16_384:
        return bytes((value & 127 | 128, value >> 7))
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def topic_field(topic: str) -> bytes:
    """The wire form of a PUBLISH's topic."""
    encoded = topic.encode()
    return len(encoded).to_bytes(2, "big") + encoded


def publish_pieces(
    topic: bytes, content: Sequence[bytes | memoryview], size: int
) -> tuple[bytes | memoryview, ...]:
    """A PUBLISH of QoS 0 in pieces; ``topic`` is its field, ``content`` has ``size`` bytes."""
    length = variable_byte_integer(len(topic) + 1 + size)
    return (b"\x30", length, topic, b"\0", *content)


def read_variable_byte_integer(run: bytes | bytearray | memoryview, at: int) -> tuple[int, int]:
    """A variable byte integer and where it ends.

    Raises:
        DecodeError: It takes more than 4 bytes, or more than it needs: a codec refuses that.
        IndexError: ``run`` ends within it.
    """
    value = shift = 0
    for index in range(at, at + 4):
        byte = run[index]
        value |= (byte & 127) << shift
        if byte < 128:
            if shift and not byte:
                raise DecodeError("run: a length takes more bytes than it needs")
            return value, index + 1
        shift += 7
    raise DecodeError("run: a length takes more than 4 bytes")


def _check_properties(run: bytes, at: int, end: int) -> None:
    length, at = read_variable_byte_integer(run, at)
    if at + length > end:
        raise DecodeError("run: properties are longer than their packet")
    end = at + length
    seen: set[int] = set()
    while at < end:
        kind = run[at]
        at += 1
        if kind in seen and kind != 0x26:
            raise DecodeError(f"run: property {kind:#04x} twice")
        seen.add(kind)
        if kind in FIXED_BYTES:
            if kind == 0x01 and run[at] > 1:
                raise DecodeError(f"run: payload format {run[at]}")
            at += FIXED_BYTES[kind]
        elif kind in LENGTHS:
            for _ in range(LENGTHS[kind]):
                following = at + 2 + (run[at] << 8 | run[at + 1])
                text = "" if kind == _BINARY else _text(run[at + 2 : following])
                if kind == 0x08 and ("#" in text or "+" in text):
                    raise DecodeError(f"run: response topic {text!a}")
                at = following
        else:
            raise DecodeError(f"run: property {kind:#04x} does not travel")
    if at != end:
        raise DecodeError("run: a property is longer than the properties")


def _text(encoded: bytes) -> str:
    try:
        text = encoded.decode()
    except UnicodeDecodeError as error:
        raise DecodeError("run: text that is not UTF-8") from error
    if "\0" in text:
        raise DecodeError("run: text with a null character")
    if (character := unwelcome_in(text)) is not None:
        raise DecodeError(f"run: text with {character!a}, for which our broker might end us")
    return text
