"""Retained publications inside a run of PUBLISH packets, as bytes.

Source: OASIS MQTT 5.0, 3.3.
"""

from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

from federator.protocol.forwarding.publications import (
    DUP_BIT,
    QOS_BITS,
    RETAIN_BIT,
    read_variable_byte_integer,
    variable_byte_integer,
)

DIGEST_BYTES = 8

TAKEN_BYTES = 81_920
"""Every broker of a federation accepts packets of this length: control messages have it."""


class RetainedPacket(NamedTuple):
    """One retained publication: its place in the run, counted in packets and in bytes."""

    number: int
    start: int
    end: int
    topic: str
    digest: int
    deletes: bool
    may_vanish: bool
    """A broker may drop it silently: at QoS 0 and this length, ``message_size_limit`` does."""


def payload_digest(payload: bytes | memoryview) -> int:
    """The digest of ``payload``, a number below 2**64."""
    return int.from_bytes(blake2b(payload, digest_size=DIGEST_BYTES).digest(), "big")


def retained_in(run: bytes) -> Iterator[RetainedPacket]:
    """The retained publications of ``run``, whole well-formed packets."""
    at = number = 0
    while at < len(run):
        remaining, head = read_variable_byte_integer(run, at + 1)
        end = head + remaining
        if run[at] & RETAIN_BIT:
            topic_end = head + 2 + (run[head] << 8 | run[head + 1])
            properties_at = topic_end + (2 if run[at] & QOS_BITS else 0)
            properties, payload_at = read_variable_byte_integer(run, properties_at)
            payload = run[payload_at + properties : end]
            topic = run[head + 2 : topic_end].decode()
            may_vanish = end - at > TAKEN_BYTES and not run[at] & QOS_BITS
            digest = payload_digest(payload)
            yield RetainedPacket(number, at, end, topic, digest, not payload, may_vanish)
        number += 1
        at = end


def as_stored(packet: bytes | memoryview) -> bytes:
    """Return ``packet`` as a broker stores it: retained, without DUP."""
    copy = bytearray(packet)
    copy[0] = copy[0] & ~DUP_BIT | RETAIN_BIT
    return bytes(copy)


def at_least_once(packet: bytes) -> bytes:
    """Return a QoS 0 ``packet`` as one of QoS 1, since its true QoS is unknown; else itself."""
    if packet[0] & QOS_BITS:
        return packet
    remaining, head = read_variable_byte_integer(packet, 1)
    topic_end = head + 2 + (packet[head] << 8 | packet[head + 1])
    start = bytes((packet[0] | 0x02,)) + variable_byte_integer(remaining + 2)
    return start + packet[head:topic_end] + b"\0\1" + packet[topic_end:]
