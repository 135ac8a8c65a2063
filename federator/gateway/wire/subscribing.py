"""SUBSCRIBE, UNSUBSCRIBE and their answers, in both versions.

Source: OASIS MQTT 5.0 and 3.1.1, 3.8 to 3.11.
"""

from dataclasses import dataclass
from typing import Final

from federator.gateway.wire.fields import Cursor, write_packet, write_text, write_u16
from federator.gateway.wire.kinds import V5, Kind, MalformedError, Packet, Reason, Version
from federator.gateway.wire.properties import Properties, read_properties, write_properties
from federator.protocol.filters.syntax import SHARE, validate_filter

FILTERS_MAX: Final = 10_000
"""How many filters one packet may have."""

NO_LOCAL: Final = 0x04
RETAIN_AS_PUBLISHED: Final = 0x08
RETAIN_HANDLING: Final = 0x30
"""0, 0x10 or 0x20: send retained messages always, to new subscriptions, never."""

_QOS: Final = 0x03


@dataclass(frozen=True, slots=True)
class Subscribe:
    """A SUBSCRIBE: filters, each with its options byte.

    Its lowest two bits are the QoS; the rest is 0 in 3.1.1.
    """

    packet_id: int
    filters: tuple[tuple[str, int], ...]
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """An UNSUBSCRIBE."""

    packet_id: int
    filters: tuple[str, ...]
    properties: Properties = ()


Request = Subscribe | Unsubscribe


@dataclass(frozen=True, slots=True)
class Answer:
    """A SUBACK or UNSUBACK; the UNSUBACK of 3.1.1 has no codes."""

    packet_id: int
    codes: bytes
    properties: Properties = ()


def read_request(block: bytes, packet: Packet, version: Version) -> Request:
    """Read a SUBSCRIBE or UNSUBSCRIBE."""
    cursor, kind = Cursor(block, packet), Kind(packet[0] & 0xF0)
    packet_id, properties = _head(cursor, kind, version)
    filters: list[tuple[str, int]] = []
    while cursor.left:
        filter = _filter(cursor)
        options = _options(cursor, filter, version) if kind == Kind.SUBSCRIBE else 0
        filters.append((filter, options))
        if len(filters) > FILTERS_MAX:
            text = f"more than {FILTERS_MAX} filters in a packet"
            raise MalformedError(text, Reason.QUOTA_EXCEEDED)
    if not filters:
        raise MalformedError(f"{kind.name} without a filter")
    if kind == Kind.SUBSCRIBE:
        return Subscribe(packet_id, tuple(filters), properties)
    return Unsubscribe(packet_id, tuple(filter for filter, _ in filters), properties)


def write_request(request: Request, version: Version) -> bytes:
    """Write a SUBSCRIBE or UNSUBSCRIBE; options unknown to 3.1.1 are left out."""
    properties = write_properties(request.properties) if version == V5 else b""
    parts = [write_u16(request.packet_id), properties]
    if isinstance(request, Unsubscribe):
        return write_packet(Kind.UNSUBSCRIBE | 2, *parts, *map(write_text, request.filters))
    allowed = 0x3F if version == V5 else _QOS
    for filter, options in request.filters:
        parts += write_text(filter), bytes((options & allowed,))
    return write_packet(Kind.SUBSCRIBE | 2, *parts)


def read_answer(block: bytes, packet: Packet, version: Version) -> Answer:
    """Read a SUBACK or UNSUBACK."""
    cursor = Cursor(block, packet)
    kind = packet[0] & 0xF0
    packet_id, properties = _head(cursor, kind, version)
    codes = cursor.rest()
    if not codes and (version == V5 or kind == Kind.SUBACK):
        raise MalformedError("an answer without a code")
    if codes and version != V5 and kind == Kind.UNSUBACK:
        raise MalformedError("UNSUBACK of 3.1.1 with codes")
    return Answer(packet_id, codes, properties)


def write_answer(kind: Kind, answer: Answer, version: Version) -> bytes:
    """Write a SUBACK or UNSUBACK; 3.1.1 has one refusal (0x80) and no codes in UNSUBACK."""
    packet_id = write_u16(answer.packet_id)
    if version == V5:
        return write_packet(kind, packet_id, write_properties(answer.properties), answer.codes)
    if kind == Kind.UNSUBACK:
        return write_packet(kind, packet_id)
    return write_packet(kind, packet_id, bytes(min(code, 0x80) for code in answer.codes))


def _head(cursor: Cursor, kind: int, version: Version) -> tuple[int, Properties]:
    """Read the packet id and the properties, with which all of these begin."""
    packet_id = cursor.u16()
    if not packet_id:
        raise MalformedError("the packet id 0")
    return packet_id, read_properties(cursor, kind) if version == V5 else ()


def _filter(cursor: Cursor) -> str:
    filter = cursor.text()
    try:
        return validate_filter(filter)
    except ValueError as error:
        raise MalformedError(str(error)) from None


def _options(cursor: Cursor, filter: str, version: Version) -> int:
    options = cursor.byte()
    retain_handling = options & RETAIN_HANDLING
    if options & (0xC0 if version == V5 else 0xFC) or 3 in (options & _QOS, retain_handling >> 4):
        raise MalformedError(f"a subscription with the options {options:#x}")
    if options & NO_LOCAL and filter.startswith(SHARE):
        raise MalformedError("a shared subscription with No Local", Reason.PROTOCOL_ERROR)
    return options
