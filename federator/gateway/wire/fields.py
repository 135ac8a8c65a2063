"""The data types of MQTT: read from packets, and written.

A ``Cursor`` moves through the body of one packet and can never leave it, whatever its lengths are.

Source: OASIS MQTT 5.0, 1.5.
"""

from federator.gateway.wire.kinds import MalformedError, Packet, Reason
from federator.protocol.filters.syntax import TEXT_BYTES_MAX, unwelcome_in


class Cursor:
    """A position in the body of a packet, in the block that ``Splitter.feed`` returned."""

    __slots__ = ("at", "block", "end")

    def __init__(self, block: bytes, packet: Packet) -> None:
        self.block = block
        self.at = packet[2]
        self.end = packet[3]

    @property
    def left(self) -> int:
        """How many bytes are unread."""
        return self.end - self.at

    def take(self, count: int) -> int:
        """Step over ``count`` bytes and return where they begin.

        Raises:
            MalformedError: The packet ends too early.
        """
        at = self.at
        if at + count > self.end:
            raise MalformedError("a packet ends inside a field")
        self.at = at + count
        return at

    def byte(self) -> int:
        """Read one byte."""
        return self.block[self.take(1)]

    def u16(self) -> int:
        """Read an integer of two bytes."""
        at = self.take(2)
        return self.block[at] << 8 | self.block[at + 1]

    def u32(self) -> int:
        """Read an integer of four bytes."""
        at = self.take(4)
        return int.from_bytes(self.block[at : at + 4], "big")

    def varint(self) -> int:
        """Read a variable byte integer, which must have the shortest form."""
        value = 0
        for shift in (0, 7, 14, 21):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if shift and not byte:
                    break
                return value
        raise MalformedError("no variable byte integer")

    def binary(self) -> bytes:
        """Read bytes after their count."""
        count = self.u16()
        at = self.take(count)
        return self.block[at : at + count]

    def text(self) -> str:
        """Read UTF-8 text after its count."""
        return as_text(self.binary())

    def rest(self) -> bytes:
        """Read all that is left."""
        return self.block[self.take(self.left) : self.end]

    def finish(self) -> None:
        """Raise ``MalformedError`` if something is left."""
        if self.at != self.end:
            raise MalformedError(f"{self.left} bytes behind the last field")


def as_text(encoded: bytes) -> str:
    """Decode text as strictly as the strictest broker.

    A less strict gateway would forward text for which the broker closes the connection.
    """
    try:
        text = encoded.decode()
    except UnicodeDecodeError as error:
        raise MalformedError(f"text that is not UTF-8 ({error.reason})") from None
    if "\0" in text or unwelcome_in(text) is not None:
        raise MalformedError("text with characters that brokers refuse")
    return text


def write_varint(value: int) -> bytes:
    """Write a variable byte integer."""
    assert 0 <= value < 1 << 28, "no variable byte integer"
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def write_u16(value: int) -> bytes:
    """Write an integer in two bytes."""
    return value.to_bytes(2, "big")


def write_binary(value: bytes) -> bytes:
    """Write bytes after their count.

    Raises:
        MalformedError: There are too many for a count.
    """
    if len(value) > TEXT_BYTES_MAX:
        raise MalformedError(f"a field of {len(value)} bytes", Reason.PACKET_TOO_LARGE)
    return len(value).to_bytes(2, "big") + value


def write_text(value: str) -> bytes:
    """Write UTF-8 text after its count."""
    return write_binary(value.encode())


def write_packet(first: int, *parts: bytes) -> bytes:
    """Write a packet with its fixed header."""
    body = b"".join(parts)
    return bytes((first,)) + write_varint(len(body)) + body
