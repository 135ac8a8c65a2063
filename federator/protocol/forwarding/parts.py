"""A frame that is longer than the next broker accepts travels in parts.

A broker says in CONNACK how long a packet it accepts (Mosquitto's ``max_packet_size``). One
publication beyond that must not hold up those behind it, nor must many short ones in a long frame.
So such a frame, or a bundle, is cut. Only agents see parts. A publication that is too long for a
subscriber's broker is refused there, when it is published.

Layout of a part, big-endian: version, sender, the number of the whole, its length, the offset of
the part; then the bytes, in order. Each part is sealed as a frame is.

Source: docs/protocol.md section 8.
"""

import struct
from collections.abc import Iterator
from typing import Final

from federator.errors import DecodeError
from federator.protocol.types import BrokerId

PART_VERSION: Final = 4
"""Takes the place of a frame's version."""

WHOLE_BYTES_MAX: Final = 17 * 1024 * 1024
WHOLES_MAX: Final = 2
"""How many wholes one neighbour sends at a time: its urgent frames alternate with others."""

PART_BYTES_MIN: Final = 512
"""The least length of a part: a broker that accepts still less gets nothing."""

_HEADER = struct.Struct(">BIIII")
PART_HEADER_BYTES: Final = _HEADER.size


def cut(content: bytes, part_bytes: int, *, sender: BrokerId, number: int) -> Iterator[bytes]:
    """The parts of ``content``, of ``part_bytes`` each, except the last."""
    size = part_bytes - PART_HEADER_BYTES
    for at in range(0, len(content), size):
        head = _HEADER.pack(PART_VERSION, sender, number, len(content), at)
        yield head + content[at : at + size]


def is_part(payload: bytes) -> bool:
    """Whether ``payload`` claims to be a part."""
    return payload[:1] == bytes((PART_VERSION,))


def sender_of(payload: bytes) -> BrokerId:
    """The agent that claims to have cut this part. Raises ``DecodeError`` if it is no part."""
    if len(payload) <= PART_HEADER_BYTES:
        raise DecodeError(f"part: {len(payload)} bytes, more than {PART_HEADER_BYTES} wanted")
    return BrokerId(int.from_bytes(payload[1:5], "big"))


class Assembly:
    """Reassembles parts, per neighbour; a missing part voids the others."""

    def __init__(self) -> None:
        self._begun: dict[BrokerId, dict[int, bytearray]] = {}

    def put(self, payload: bytes) -> bytes | None:
        """Take a part of ``sender_of(payload)``; return the whole once it is complete.

        Raises:
            DecodeError: The part contradicts itself.
        """
        _, sender, number, total, at = _HEADER.unpack_from(payload)
        content = memoryview(payload)[PART_HEADER_BYTES:]
        if not at + len(content) <= total <= WHOLE_BYTES_MAX:
            raise DecodeError(f"part: bytes {at} to {at + len(content)} of {total}")
        begun = self._begun.setdefault(BrokerId(sender), {})
        if at == 0:
            begun.pop(number, None)
            if len(begun) >= WHOLES_MAX:
                del begun[next(iter(begun))]
            begun[number] = bytearray()
        whole = begun.get(number)
        if whole is None or len(whole) != at:
            begun.pop(number, None)
            return None
        whole += content
        if len(whole) < total:
            return None
        del begun[number]
        return bytes(whole)

    def forget(self, sender: BrokerId) -> None:
        """Drop the incomplete parts of ``sender``."""
        self._begun.pop(sender, None)
