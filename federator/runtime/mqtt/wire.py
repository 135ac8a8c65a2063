"""Packets of MQTT 5 as bytes: where they begin and end, and the few fields patched in place.

The codec parses. This module handles what the codec cannot: a read may end in the middle of a
packet, a malformed packet must cost the connection and not the process, and the identifier of a
ready-made PUBLISH can be written without parsing it again.

Source: OASIS MQTT 5.0, sections 1.5.5 (variable byte integer), 2.1 (fixed header), 3.3 (PUBLISH).
"""

import asyncio
import struct
import sys
from collections.abc import AsyncIterator, Callable, Sequence

from mqtt5 import Packet, PublishPacket, read

from federator.errors import LinkError
from federator.protocol.forwarding import publications
from federator.protocol.forwarding.publications import DUP_BIT, QOS_BITS

Inbound = publications.Inbound
"""A PUBLISH and its bytes' place in the chunk: ``chunk[start:end]``."""

Out = list[bytes | bytearray]
"""Packets to send, in order. They must not change until they have left."""

PUBACK = 0x40
PUBREC = 0x50
PUBREL = 0x62
PUBCOMP = 0x70

PINGREQ = b"\xc0\x00"
LENGTH_BYTES_MAX = 4
READ_BYTES = 65_536

PACKET_TOO_LARGE = 0x95
_ANSWERS = {PUBACK: 1, PUBREC: 2}  # with their QoS
_PUBLISH = 0x30
_PUBACK_WORD = PUBACK << 24 | 2 << 16
_PACKET_ID_NOT_FOUND = 0x92


def read_packets(
    chunk: memoryview,
    publishes: list[Inbound],
    others: list[Packet],
    *,
    acknowledged: list[int] | None = None,
    too_large: list[tuple[int, int]] | None = None,
    packets_max: int = sys.maxsize,
) -> int:
    """Append the whole packets of ``chunk``, ``packets_max`` at most; return where the rest begins.

    If given, ``acknowledged`` gets the identifiers of PUBACKs with success in their shortest form:
    they come by the thousand, and need no codec. ``too_large`` gets the QoS and the identifier of
    PUBACKs and PUBRECs with that reason: it is Mosquitto's and not in MQTT.

    Raises:
        LinkError: At the first malformed packet; those before it have been appended.
    """
    offset, end = 0, len(chunk)
    try:
        for _ in range(packets_max):
            if offset >= end:
                break
            if acknowledged is not None and chunk[offset] == PUBACK and chunk[offset + 1] == 2:
                if offset + 4 > end:
                    break
                acknowledged.append(chunk[offset + 2] << 8 | chunk[offset + 3])
                offset += 4
                continue
            if too_large is not None and (qos := _ANSWERS.get(chunk[offset])) is not None:
                length = chunk[offset + 1]
                if 2 < length < 0x80 and chunk[offset + 4] == PACKET_TOO_LARGE:
                    if offset + 2 + length > end:
                        break
                    too_large.append((qos, chunk[offset + 2] << 8 | chunk[offset + 3]))
                    offset += 2 + length
                    continue
            packet, size = read(chunk[offset:] if offset else chunk)
            following = offset + size
            if type(packet) is PublishPacket:
                publishes.append((packet, offset, following))
            else:
                others.append(packet)
            offset = following
    except IndexError:  # how the codec reports an incomplete packet
        return offset
    except ValueError as error:
        raise LinkError(f"malformed packet: {error}") from error
    except BaseException as error:
        # The codec panics on text that is not UTF-8; its exception derives from BaseException.
        if type(error).__name__ != "PanicException":
            raise
        raise LinkError("malformed packet: text that is not UTF-8") from error
    return offset


async def reads(
    reader: asyncio.StreamReader,
    *,
    packet_bytes_max: int,
    on_first: Callable[[memoryview], None] = lambda _: None,
) -> AsyncIterator[tuple[list[Inbound], list[Packet]]]:
    """The publications and the other packets that each read completes, until the end.

    Raises:
        LinkError: A packet is malformed, or too long, or ``on_first`` rejects the first read.
    """
    received = bytearray()
    is_first = True
    while chunk := await reader.read(READ_BYTES):
        if is_first:
            on_first(memoryview(chunk))
            is_first = False
        received += chunk
        publishes: list[Inbound] = []
        others: list[Packet] = []
        used = read_packets(memoryview(bytes(received)), publishes, others)
        del received[:used]
        if len(received) > packet_bytes_max:
            raise LinkError(f"a packet of more than {packet_bytes_max} bytes")
        if used:
            yield publishes, others


def is_publish(packet: bytes | bytearray) -> bool:
    return packet[0] & 0xF0 == _PUBLISH


def packet_length(view: memoryview | bytes | bytearray) -> int | None:
    """Bytes of the packet that begins at ``view[0]``; ``None`` when its header is incomplete.

    Raises:
        LinkError: The length is not a variable byte integer.
    """
    remaining, available = 0, len(view)
    for index in range(1, LENGTH_BYTES_MAX + 1):
        if index >= available:
            return None
        byte = view[index]
        remaining |= (byte & 0x7F) << (7 * (index - 1))
        if byte < 0x80:
            return remaining + index + 1
    raise LinkError("malformed packet: its length takes more than 4 bytes")


def packet_id_at(packet: bytes | bytearray | memoryview) -> int:
    """Where the topic of a whole PUBLISH packet ends: at QoS 1 and 2 its identifier follows."""
    topic_at = _header_bytes(packet)
    return topic_at + 2 + int.from_bytes(packet[topic_at : topic_at + 2], "big")


def publish_topic(packet: bytes | bytearray) -> str:
    return packet[_header_bytes(packet) + 2 : packet_id_at(packet)].decode("utf-8", "replace")


def address_publish(packet: bytearray, id_at: int, packet_id: int, *, duplicate: bool) -> None:
    """Write the identifier and the DUP flag of a PUBLISH packet in place."""
    packet[id_at], packet[id_at + 1] = packet_id >> 8, packet_id & 0xFF
    packet[0] = packet[0] | DUP_BIT if duplicate else packet[0] & ~DUP_BIT


def lower_qos(packet: bytearray, id_at: int, qos: int) -> bytearray:
    """The same QoS 1 or 2 PUBLISH packet at a lower ``qos``, for a broker that grants no more."""
    first = packet[0] & ~(QOS_BITS | DUP_BIT) | qos << 1
    if qos > 0:
        packet[0] = first
        return packet
    body = packet[_header_bytes(packet) : id_at] + packet[id_at + 2 :]
    return bytearray([first]) + publications.variable_byte_integer(len(body)) + body


class TriedPacket(bytearray):
    """A PUBLISH that, with those of the same callback, goes another way if it is too long."""

    on_too_long: Callable[[], None]


def raise_qos(packet: bytes) -> TriedPacket:
    """The same QoS 0 PUBLISH packet at QoS 1, its identifier not written yet."""
    id_at = packet_id_at(packet)
    body = packet[_header_bytes(packet) : id_at] + b"\0\0" + packet[id_at:]
    head = bytes((packet[0] | 1 << 1,)) + publications.variable_byte_integer(len(body))
    return TriedPacket(head + body)


def acknowledgement(kind: int, packet_id: int) -> bytes:
    """A PUBACK, PUBREC, PUBREL or PUBCOMP (``kind``: its first byte) with success."""
    return bytes((kind, 2, packet_id >> 8, packet_id & 0xFF))


def acknowledgements(packet_ids: Sequence[int]) -> bytes:
    """PUBACKs with success."""
    return struct.pack(
        f">{len(packet_ids)}I", *[_PUBACK_WORD | packet_id for packet_id in packet_ids]
    )


def unknown_release(packet_id: int) -> bytes:
    """The PUBREL that answers a PUBREC for a packet we did not send."""
    return bytes((PUBREL, 3, packet_id >> 8, packet_id & 0xFF, _PACKET_ID_NOT_FOUND))


def split_run(run: bytes) -> list[bytes]:
    """The packets of a back-to-back run, known to be well-formed."""
    return [run[start:end] for start, end, _ in publications.topics_of(run)]


def inbound_of(run: bytes) -> list[Inbound]:
    """The parsed packets of a back-to-back run, known to be well-formed."""
    publishes: list[Inbound] = []
    read_packets(memoryview(run), publishes, [])
    return publishes


def _header_bytes(packet: bytes | bytearray | memoryview) -> int:
    size = 2
    while packet[size - 1] >= 0x80:
        size += 1
    return size
