"""PUBLISH and its acknowledgements: only what a proxy must know, as fast as Python allows.

Payloads are not read. A topic that was seen before is known to be valid.

Source: OASIS MQTT 5.0, 3.3 to 3.7 and 4.7.
"""

from typing import Final

from federator.gateway.wire.fields import Cursor, as_text, write_packet, write_text, write_u16
from federator.gateway.wire.kinds import V5, Kind, MalformedError, Packet, Reason, Version
from federator.gateway.wire.properties import (
    Properties,
    Property,
    number_in,
    read_properties,
    without,
    write_properties,
)
from federator.gateway.wire.splitter import only
from federator.protocol.filters.syntax import LEVELS_MAX

DUP: Final = 0x08
QOS: Final = 0x06
QOS_2: Final = 0x04
RETAIN: Final = 0x01

KNOWN_TOPICS_MAX: Final = 8_192
KNOWN_TOPIC_BYTES_MAX: Final = 256
"""Longer topics are checked each time: hostile topics can occupy some 4 MB."""

_known: dict[bytes, str] = {}
"""Valid topics: checking the topic is the expensive part of a PUBLISH, and topics repeat."""

PublishHeader = tuple[str, int, int, int]
"""Topic (may be empty with an alias), packet id (0 with QoS 0), its index in the block, alias
(0 without)."""


def read_publish(
    block: bytes, packet: Packet, version: Version, *, from_client: bool = True
) -> PublishHeader:
    """Read all of a PUBLISH but its payload."""
    first, _, body, end = packet
    try:
        after = body + 2 + (block[body] << 8 | block[body + 1])
        topic = _known[block[body + 2 : after]]
    except (IndexError, KeyError):
        topic, after = _new_topic(block, body, end)
    if after > end:
        raise MalformedError("PUBLISH ends inside its topic")
    packet_id, id_at = 0, after
    if first & QOS:
        after += 2
        if after > end:
            raise MalformedError("PUBLISH ends inside its packet id")
        packet_id = block[id_at] << 8 | block[id_at + 1]
        if not packet_id:
            raise MalformedError("PUBLISH with the packet id 0", Reason.PROTOCOL_ERROR)
    if version == V5:
        if after >= end:
            raise MalformedError("PUBLISH ends before its properties")
        alias = 0
        if block[after]:
            alias = _read_alias(block, (first, 0, after, end), from_client=from_client)
        if not topic and not alias:
            raise MalformedError("PUBLISH with neither a topic nor an alias", Reason.PROTOCOL_ERROR)
        return topic, packet_id, id_at, alias
    if not topic:
        raise MalformedError("PUBLISH without a topic", Reason.TOPIC_NAME_INVALID)
    return topic, packet_id, id_at, 0


def publish_id(block: bytes, packet: Packet) -> tuple[int, int]:
    """The packet id of a QoS 1 or 2 PUBLISH from a trusted broker, and its index in the block."""
    _, _, body, end = packet
    if end - body < 4:
        raise MalformedError("PUBLISH ends inside its topic")
    at = body + 2 + (block[body] << 8 | block[body + 1])
    if at + 2 > end:
        raise MalformedError("PUBLISH ends inside its packet id")
    return block[at] << 8 | block[at + 1], at


def topic_of(packet: bytes) -> bytes:
    """The encoded topic of a whole PUBLISH from a trusted broker."""
    _, _, body, _ = only(packet)
    return packet[body + 2 : body + 2 + (packet[body] << 8 | packet[body + 1])]


def read_payload(packet: bytes, version: Version) -> tuple[bytes, bytes, Properties]:
    """Topic, payload and properties of a whole, well-formed PUBLISH."""
    cursor = Cursor(packet, only(packet))
    topic = cursor.binary()
    cursor.take(2 if packet[0] & QOS else 0)
    properties = read_properties(cursor, Kind.PUBLISH) if version == V5 else ()
    return topic, packet[cursor.at :], properties


def again(packet: bytes, packet_id: int, *, duplicate: bool = False) -> bytes:
    """A whole QoS 1 or 2 PUBLISH with another id and DUP flag."""
    _, id_at = publish_id(packet, only(packet))
    changed = bytearray(packet)
    changed[id_at] = packet_id >> 8
    changed[id_at + 1] = packet_id & 0xFF
    changed[0] = changed[0] | DUP if duplicate else changed[0] & ~DUP
    return bytes(changed)


def with_topic(block: bytes, packet: Packet, topic: str, id_at: int) -> bytes:
    """A PUBLISH of version 5 with ``topic`` and no alias; ``id_at`` as in its header."""
    first, _, _, end = packet
    after = id_at + 2 if first & QOS else id_at
    cursor = Cursor(block, (first, 0, after, end))
    properties = without(read_properties(cursor, Kind.PUBLISH), Property.TOPIC_ALIAS)
    return write_packet(
        first, write_text(topic), block[id_at:after], write_properties(properties), cursor.rest()
    )


def read_ack(
    block: bytes, packet: Packet, version: Version, *, from_client: bool = True
) -> tuple[int, int]:
    """Packet id and reason of a PUBACK, PUBREC, PUBREL or PUBCOMP.

    A broker may send any reason: Mosquitto sends "packet too large", which the standard does not
    list.
    """
    first, _, body, end = packet
    if end - body < 2 or (version != V5 and end - body > 2):
        raise MalformedError("an acknowledgement of the wrong length")
    packet_id = block[body] << 8 | block[body + 1]
    if not packet_id:
        raise MalformedError("an acknowledgement of the packet id 0", Reason.PROTOCOL_ERROR)
    if end - body == 2:
        return packet_id, 0
    if end - body > 3:
        cursor = Cursor(block, (first, 0, body + 3, end))
        read_properties(cursor, first & 0xF0)
        cursor.finish()
    reason = block[body + 2]
    if from_client and reason not in _ACK_REASONS[first & 0xF0]:
        raise MalformedError(
            f"an acknowledgement with the reason {reason:#x}", Reason.PROTOCOL_ERROR
        )
    return packet_id, reason


def write_ack(kind: Kind, packet_id: int, version: Version, reason: int = 0) -> bytes:
    """Write a PUBACK, PUBREC, PUBREL or PUBCOMP; 3.1.1 has no reasons."""
    first = kind | 2 if kind == Kind.PUBREL else kind
    if reason and version == V5:
        return bytes((first, 3, packet_id >> 8, packet_id & 0xFF, reason))
    return bytes((first, 2, packet_id >> 8, packet_id & 0xFF))


def write_publish(
    topic: str,
    payload: bytes,
    *,
    version: Version,
    qos: int = 0,
    retain: bool = False,
    packet_id: int = 0,
    properties: Properties = (),
) -> bytes:
    return write_packet(
        Kind.PUBLISH | qos << 1 | retain,
        write_text(topic),
        write_u16(packet_id) if qos else b"",
        write_properties(properties) if version == V5 else b"",
        payload,
    )


def checked_topic(encoded: bytes) -> str:
    """Decode a topic that a client publishes on."""
    topic = as_text(encoded)
    if not topic or "+" in topic or "#" in topic:
        raise MalformedError("a topic that is empty or has wildcards", Reason.PROTOCOL_ERROR)
    if topic.count("/") >= LEVELS_MAX:
        raise MalformedError(f"a topic of over {LEVELS_MAX} levels", Reason.PROTOCOL_ERROR)
    return topic


def _new_topic(block: bytes, body: int, end: int) -> tuple[str, int]:
    """Read a topic that is not cached; return it and where it ends."""
    cursor = Cursor(block, (0, 0, body, end))
    encoded = cursor.binary()
    if not encoded:
        return "", cursor.at
    topic = checked_topic(encoded)
    if len(encoded) <= KNOWN_TOPIC_BYTES_MAX:
        if len(_known) >= KNOWN_TOPICS_MAX:
            _known.clear()
        _known[encoded] = topic
    return topic, cursor.at


def _read_alias(block: bytes, packet: Packet, *, from_client: bool) -> int:
    properties = read_properties(Cursor(block, packet), Kind.PUBLISH)
    if from_client and number_in(properties, Property.SUBSCRIPTION_ID, 0):
        raise MalformedError(
            "PUBLISH of a client with a subscription identifier", Reason.PROTOCOL_ERROR
        )
    return number_in(properties, Property.TOPIC_ALIAS, 0)


_PUBLISH_REASONS: Final = frozenset({0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99})
_RELEASE_REASONS: Final = frozenset({0x00, 0x92})
_ACK_REASONS: Final[dict[int, frozenset[int]]] = {
    Kind.PUBACK: _PUBLISH_REASONS,
    Kind.PUBREC: _PUBLISH_REASONS,
    Kind.PUBREL: _RELEASE_REASONS,
    Kind.PUBCOMP: _RELEASE_REASONS,
}
