"""The format of a datagram, inside its seal.

Every datagram names its stream and its number there; from the numbers the receiver learns what the
link loses. A frame is cut into **parts**, one in a datagram, numbered as well. Consecutive parts,
of any frames, make a **window**; its repair packets replace any of them. The code protects the
length of each part, its place in its frame and its bytes, so a rebuilt part has all that the lost
datagram had.

Layout, big-endian, after kind (1 byte), stream (4) and number (4):

    part    its number 4, longest wait 1, then frame 4, part 2, parts 2, bytes
    repair  the window's first part 4, place 1 (after the parts), parts 1, then a symbol
    report  see ``Report``
    probe   anything

Source: docs/udp-fec.md, "On the wire".
"""

import struct
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from federator.errors import DecodeError

PART, REPAIR, REPORT, PROBE = 1, 2, 3, 4

PARTS_PER_WINDOW_MAX: Final = 64
REPAIRS_PER_WINDOW_MAX: Final = 64
PARTS_PER_FRAME_MAX: Final = 512
WINDOW: Final = 512
"""How many frames one report covers."""

SECOND_WAITS: Final = 3
"""The second window of a part follows at most so many ``wait_ms`` after its first."""

SYMBOL_ALIGNMENT: Final = 8
SYMBOL_BYTES_MAX: Final = 1_496

_HEAD = struct.Struct(">BII")
_PART = struct.Struct(">IB")
_PLACE = struct.Struct(">IHH")
_REPAIR = struct.Struct(">IBB")
_REPORT = struct.Struct(">IIHIHI")
_LENGTH = struct.Struct(">H")
_WINDOW_BYTES: Final = WINDOW // 8

HEAD_BYTES: Final = _HEAD.size
PART_BYTES: Final = HEAD_BYTES + _PART.size + _PLACE.size
"""Bytes of a datagram with a part, beside the part."""
REPAIR_BYTES: Final = HEAD_BYTES + _REPAIR.size
SYMBOL_EXTRA: Final = _LENGTH.size + _PLACE.size
"""Bytes of a symbol, beside those of a frame."""


class Part(NamedTuple):
    """One part of a frame.

    Repair packets for it are sent at most ``wait_ms`` after it, others at most ``SECOND_WAITS``
    times so long after those.
    """

    ordinal: int  # among the parts of the stream
    wait_ms: int
    content: bytes  # the place in its frame and the bytes, as the code protects them


class Repair(NamedTuple):
    """One repair packet."""

    first: int  # the number of the first part of its window
    place: int  # which packet of the code it is; parts come first
    parts: int  # how many the window has
    symbol: bytes  # as long as every symbol of the window


class Report(NamedTuple):
    """Reports to the sender of a stream what arrived."""

    stream: int  # the stream it is about
    newest: int  # the highest number of a datagram that arrived
    held_ms: int  # how long ago that was
    top: int  # the highest frame of which a part arrived
    whole: int  # which frames are complete: bit i is frame ``top - i``
    plr_ppm: int  # datagrams lost per million
    abl_hundredths: int  # datagrams lost in a row, times 100


class Place(NamedTuple):
    """The place of a part in its frame."""

    frame: int
    part: int
    parts: int


Body = Part | Repair | Report | None
"""The content of a datagram after its head; ``None``: it is a probe."""


def head(kind: int, *, stream: int, number: int) -> bytes:
    """The first bytes of a datagram."""
    return _HEAD.pack(kind, stream, number)


def content(place: Place, piece: bytes | memoryview) -> bytes:
    """What the code protects of one part."""
    return _PLACE.pack(*place) + piece


def part_body(part: Part) -> bytes:
    """The wire form of ``part``, after the head."""
    return _PART.pack(part.ordinal, part.wait_ms) + part.content


def repair_body(repair: Repair) -> bytes:
    """The wire form of ``repair``, after the head."""
    return _REPAIR.pack(repair.first, repair.place, repair.parts) + repair.symbol


def report_body(report: Report) -> bytes:
    """The wire form of ``report``, after the head."""
    stream, newest, held_ms, top, whole, plr_ppm, abl_hundredths = report
    facts = _REPORT.pack(stream, newest, held_ms, top, abl_hundredths, plr_ppm)
    return facts + whole.to_bytes(_WINDOW_BYTES, "little")


def unpack(datagram: bytes) -> tuple[int, int, Body]:
    """The stream and the number of a datagram, and its content.

    Raises:
        DecodeError: A field is out of range or contradicts another.
    """
    if len(datagram) < HEAD_BYTES:
        raise DecodeError(f"datagram: {len(datagram)} bytes, at least {HEAD_BYTES} wanted")
    kind, stream, number = _HEAD.unpack_from(datagram)
    if kind == PROBE:
        return stream, number, None
    if kind not in _READERS:
        raise DecodeError(f"datagram: of kind {kind}")
    try:
        return stream, number, _READERS[kind](datagram)
    except struct.error as error:
        raise DecodeError(f"datagram: kind {kind} in {len(datagram)} bytes") from error


def _part(datagram: bytes) -> Part:
    ordinal, wait_ms = _PART.unpack_from(datagram, HEAD_BYTES)
    protected = datagram[HEAD_BYTES + _PART.size :]
    if symbol_bytes([protected]) > SYMBOL_BYTES_MAX:
        raise DecodeError(f"part: {len(protected)} bytes make no symbol")
    return Part(ordinal, wait_ms, protected)


def _repair(datagram: bytes) -> Repair:
    first, place, parts = _REPAIR.unpack_from(datagram, HEAD_BYTES)
    size = len(datagram) - REPAIR_BYTES
    if not 1 <= parts <= PARTS_PER_WINDOW_MAX:
        raise DecodeError(f"repair: a window of {parts} parts")
    if not parts <= place < parts + REPAIRS_PER_WINDOW_MAX:
        raise DecodeError(f"repair: place {place} behind {parts} parts")
    if size % SYMBOL_ALIGNMENT or not SYMBOL_EXTRA < size <= SYMBOL_BYTES_MAX:
        raise DecodeError(f"repair: a symbol of {size} bytes")
    return Repair(first, place, parts, datagram[REPAIR_BYTES:])


def _report(datagram: bytes) -> Report:
    stream, newest, held_ms, top, abl, plr_ppm = _REPORT.unpack_from(datagram, HEAD_BYTES)
    window = datagram[HEAD_BYTES + _REPORT.size :]
    if len(window) != _WINDOW_BYTES or plr_ppm > 1_000_000 or abl < 100:
        raise DecodeError(f"report: {len(window)} bytes, {plr_ppm} lost of 1000000")
    whole = int.from_bytes(window, "little")
    return Report(stream, newest, held_ms, top, whole, plr_ppm, abl)


_READERS: dict[int, Callable[[bytes], Body]] = {PART: _part, REPAIR: _repair, REPORT: _report}


def open_content(protected: bytes) -> tuple[Place, bytes]:
    """The place of a part in its frame, and its bytes.

    Raises:
        DecodeError: Place and length contradict each other.
    """
    if len(protected) <= _PLACE.size:
        raise DecodeError(f"part: {len(protected)} bytes, more than {_PLACE.size} wanted")
    place = Place(*_PLACE.unpack_from(protected))
    if place.part >= place.parts or place.parts > PARTS_PER_FRAME_MAX:
        raise DecodeError(f"part: {place.part} of {place.parts}")
    return place, protected[_PLACE.size :]


def symbol_bytes(contents: Sequence[bytes]) -> int:
    """The length of the symbols of a window."""
    longest = _LENGTH.size + max(map(len, contents))
    return -(-longest // SYMBOL_ALIGNMENT) * SYMBOL_ALIGNMENT


def to_symbol(protected: bytes, size: int) -> bytes:
    return (_LENGTH.pack(len(protected)) + protected).ljust(size, b"\0")


def from_symbol(symbol: bytes) -> bytes:
    """The part in a symbol.

    Raises:
        DecodeError: The symbol was not made by ``to_symbol``.
    """
    (length,) = _LENGTH.unpack_from(symbol)
    if length > len(symbol) - _LENGTH.size:
        raise DecodeError(f"symbol: {length} bytes in {len(symbol)}")
    return symbol[_LENGTH.size : _LENGTH.size + length]
