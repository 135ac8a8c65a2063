"""The wire format of direct links: the few forms of MQTT 5 packets that agents use.

A port open to strangers accepts only those forms, and avoids the codec, which panics on text that
is not UTF-8.

Source: docs/direct.md; OASIS MQTT 5.0, sections 3.1 (CONNECT), 3.3 (PUBLISH), 3.12 (PINGREQ).
"""

import struct
from typing import Final, NamedTuple

from federator.errors import LinkError
from federator.protocol.forwarding.publications import topic_field
from federator.protocol.types import BROKER_ID_MAX, BrokerId
from federator.runtime.mqtt.wire import PINGREQ, packet_length

CONFIRMATION: Final = struct.Struct(">QQ")
"""Received frames, and received urgent ones, since the connection began."""

DIRECT_TOPIC, URGENT_TOPIC = "d", "u"
"""What a PUBLISH to a neighbour's agent has in place of a topic: the sort of its frame. Each
connection counts frames by sort.
"""

CONFIRM_TOPIC: Final = "t"
"""The topic of confirmations; and of a connection's first packet each way, if frames are sealed."""

_CONNECT, _PUBLISH, _DISCONNECT = 0x10, 0x30, 0xE0
_PROTOCOL: Final = b"\x00\x04MQTT\x05"
_FLAGS: Final = 0x42
"""A password and a clean start: no user name, no Will."""

_HEADS: Final = {
    topic_field(topic) + b"\x00": topic for topic in (DIRECT_TOPIC, URGENT_TOPIC, CONFIRM_TOPIC)
}
_HEAD_BYTES: Final = 4


class Greeting(NamedTuple):
    """The caller's claimed id, and its token."""

    sender: BrokerId
    token: bytes


class Read(NamedTuple):
    """The packets of one read.

    Attributes:
        used: Bytes of whole packets.
        messages: Their topics and payloads, in the order received.
        pings: Count of pings to answer.
    """

    used: int
    messages: list[tuple[str, bytes]]
    pings: int


def read_greeting(chunk: memoryview) -> tuple[int, Greeting] | None:
    """The CONNECT that ``chunk`` begins with, and its length; ``None``: it is not whole yet.

    Raises:
        LinkError: It is not from a neighbour's agent.
    """
    size = packet_length(chunk)
    if chunk[0] != _CONNECT:
        raise LinkError("a caller that does not introduce itself")
    if size is None or size > len(chunk):
        return None
    packet = bytes(chunk[:size])
    at = packet.find(_PROTOCOL, 2, 5 + len(_PROTOCOL)) + len(_PROTOCOL)
    if at < len(_PROTOCOL) or size < at + 4 or packet[at] != _FLAGS or packet[at + 3] & 0x80:
        raise LinkError("a greeting of none of our agents")
    at += 4 + packet[at + 3]  # flags, keep-alive, and properties, which we ignore
    name, at = _field(packet, at)
    token, at = _field(packet, at)
    if at != size or not name.isdigit() or len(name) > len(str(BROKER_ID_MAX)):
        raise LinkError("a greeting of none of our agents")
    return size, Greeting(BrokerId(int(name)), token)


def read_packets(chunk: memoryview, *, packets_max: int) -> Read:
    """The whole packets of ``chunk``, ``packets_max`` at most.

    Raises:
        LinkError: A packet has a form that agents do not use, or is a DISCONNECT. Frames before it
            are lost with the connection, and resent by the broker.
    """
    at, size, messages, pings = 0, len(chunk), list[tuple[str, bytes]](), 0
    for _ in range(packets_max):
        if at >= size:
            break
        length = packet_length(chunk[at : at + 5])
        if length is None or at + length > size:
            break
        end = at + length
        if chunk[at] == _PUBLISH:
            head = end - _body_bytes(length)
            sort = _HEADS.get(bytes(chunk[head : head + _HEAD_BYTES]))
            if sort is None or head + _HEAD_BYTES > end:
                raise LinkError("a publication that is no frame")
            messages.append((sort, bytes(chunk[head + _HEAD_BYTES : end])))
        elif chunk[at:end] == PINGREQ:
            pings += 1
        else:
            leaves = chunk[at] == _DISCONNECT
            raise LinkError("it leaves" if leaves else "no packet for a port for frames")
        at = end
    return Read(at, messages, pings)


def _body_bytes(length: int) -> int:
    """Bytes behind the fixed header in a whole packet of ``length`` bytes."""
    header = 2
    for bound in (1 << 7, 1 << 14, 1 << 21):
        if length - header >= bound:
            header += 1
    return length - header


def _field(packet: bytes, at: int) -> tuple[bytes, int]:
    """A field with its length before it, and where it ends; beyond ``packet`` if that is short."""
    end = at + 2 + int.from_bytes(packet[at : at + 2], "big")
    return packet[at + 2 : end], end
