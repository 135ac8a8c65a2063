"""Cut the stream of a connection into whole packets without copying them.

A read is a block of whole packets with an incomplete one at its end. Only that piece is kept, and
prepended to the next read. So a caller can forward the block unchanged, and what waits here is
bounded by one packet of the largest size and one read.

Source: OASIS MQTT 5.0, 2.1 (fixed header) and 1.5.5 (variable byte integer).
"""

from typing import Final

from federator.gateway.wire.kinds import (
    TOLD,
    V31,
    V311,
    Kind,
    MalformedError,
    Packet,
    Reason,
    Version,
)

LENGTH_BYTES_MAX: Final = 4

ALL: Final = 2**31
"""More packets than one read has."""

_BOTH: Final = (Kind.PUBACK, Kind.PUBREC, Kind.PUBCOMP)
_FROM_CLIENT: Final = (Kind.CONNECT, Kind.PINGREQ)
_FROM_SERVER: Final = (Kind.CONNACK, Kind.SUBACK, Kind.UNSUBACK, Kind.PINGRESP)
_PUBLISHES: Final = tuple(Kind.PUBLISH | flags for flags in range(16) if flags not in (6, 7, 8, 9))
"""QoS 3 does not exist, and QoS 0 has no DUP flag, for it is never acknowledged."""


def _allowed(*firsts: int) -> bytes:
    return bytes(first in firsts for first in range(256))


_CLIENT: Final = (
    *_BOTH,
    *_FROM_CLIENT,
    *_PUBLISHES,
    Kind.PUBREL | 2,
    Kind.SUBSCRIBE | 2,
    Kind.UNSUBSCRIBE | 2,
    Kind.DISCONNECT,
)
_SERVER: Final = (*_BOTH, *_FROM_SERVER, *_PUBLISHES, Kind.PUBREL | 2)

FROM_CLIENT: Final = _allowed(*_CLIENT, Kind.AUTH)
"""First bytes a client may send; before its CONNECT the version is unknown."""

FROM_SERVER: Final = _allowed(*_SERVER, Kind.DISCONNECT, Kind.AUTH)
"""First bytes a broker may send."""

_REPEATED: Final = (Kind.PUBREL | 0xA, Kind.SUBSCRIBE | 0xA, Kind.UNSUBSCRIBE | 0xA)
"""Repeated packets, with the DUP flag of 3.1."""

_IN_VERSION: Final = {
    (V31, FROM_CLIENT): _allowed(*_CLIENT, *_REPEATED),
    (V31, FROM_SERVER): _allowed(*_SERVER),
    (V311, FROM_CLIENT): _allowed(*_CLIENT),
    (V311, FROM_SERVER): _allowed(*_SERVER),
}


class Splitter:
    """The packets of one direction of one connection.

    Args:
        limit: Bytes of a packet, including its fixed header. May be changed between reads. The
            default exceeds any packet, for a trusted broker.
        firsts: ``FROM_CLIENT`` or ``FROM_SERVER``.
        at_once: How many packets ``feed`` returns at most.

    Attributes:
        more: Whether ``feed``, called with no data, may return further packets.
        fault: Why the packet after those last returned is refused. The caller handles these first,
            then ends the connection: the answer to a valid CONNECT must not depend on whether
            garbage behind it arrived in the same read.
    """

    __slots__ = ("_at_once", "_firsts", "_held", "_needed", "fault", "limit", "more")

    def __init__(self, *, limit: int = 2**31, firsts: bytes, at_once: int = ALL) -> None:
        self.limit = limit
        self.more = False
        self._at_once = at_once
        self.fault: MalformedError | None = None
        self._firsts = firsts
        self._held = bytearray()
        self._needed = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of the incomplete packet."""
        return len(self._held)

    def speak(self, version: Version) -> None:
        """Allow what ``version`` allows: before 5 no AUTH, and no DISCONNECT from a broker."""
        self._firsts = _IN_VERSION.get((version, self._firsts), self._firsts)

    def feed(self, data: bytes) -> tuple[bytes, list[Packet]]:
        """Return a block of bytes and the whole packets in it, which lie back to back from 0.

        Check ``fault`` after handling them.

        Raises:
            MalformedError: ``fault``, of an earlier read.
        """
        if self.fault is not None:
            raise self.fault
        self.more = False
        if self._held:
            self._held += data
            if len(self._held) < self._needed:
                return b"", []
            data = bytes(self._held)
            self._held = bytearray()
        packets: list[Packet] = []
        firsts, limit = self._firsts, self.limit
        at, available = 0, len(data)
        while at + 2 <= available:
            first, length = data[at], data[at + 1]
            body = at + 2
            if length >= 0x80:
                measured = self._long_length(data, at)
                if measured is None:
                    break
                length, body = measured
            end = body + length
            if not firsts[first]:
                self.fault = _unexpected(first)
                return data, packets
            if end - at > limit:
                text = f"a packet of {end - at} bytes, {limit} are allowed"
                self.fault = MalformedError(text, Reason.PACKET_TOO_LARGE)
                return data, packets
            if end > available:
                self._needed = end - at
                break
            packets.append((first, at, body, end))
            at = end
            if len(packets) == self._at_once and at < available:
                self.more = True
                self._needed = 0
                break
        if at < available and self.fault is None:
            self._held += memoryview(data)[at:]
            if available - at < 2:
                self._needed = 2
        return data[:at] if self.more else data, packets

    def _long_length(self, data: bytes, at: int) -> tuple[int, int] | None:
        """Return remaining length and start of the body; ``None`` if incomplete or at fault."""
        length, available = 0, len(data)
        for index in range(LENGTH_BYTES_MAX):
            place = at + 1 + index
            if place >= available:
                self._needed = place + 1 - at
                return None
            byte = data[place]
            length |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                if not byte:  # happens only after a continued byte
                    break
                return length, place + 1
        self.fault = MalformedError("a packet's length is no variable byte integer")
        return None


def only(packet: bytes) -> Packet:
    """The positions of a whole, well-formed packet."""
    body = 2
    while packet[body - 1] >= 0x80:
        body += 1
    return packet[0], 0, body, len(packet)


def _unexpected(first: int) -> MalformedError:
    """The error for a first byte that this side may not send in this version."""
    kind, flags = first & 0xF0, first & 0x0F
    if not kind:
        return MalformedError("a packet of the reserved type 0")
    name = Kind(kind).name
    error = MalformedError(f"{name} with the flags {flags:#x}")
    if FROM_CLIENT[first] or FROM_SERVER[first]:
        text = f"{name} from the wrong side or in the wrong version"
        error = MalformedError(text, Reason.PROTOCOL_ERROR)
    error.told = kind in TOLD
    return error
