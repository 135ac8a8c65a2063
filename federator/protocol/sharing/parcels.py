"""The content of a frame to an inbox: a parcel of publications, or confirmations of parcels.

The body of a frame whose key is an inbox's contains one of these. A parcel is a header and a run of
PUBLISH packets, as in any other frame. Number 0 needs no confirmation: QoS 0.

Layout, big-endian: kind, epoch of the parcels' origin, then the number and the run, or up to
``RANGES_MAX`` pairs of first and last number.

Each parcel that arrives is published once, and confirmed when our own broker has it. Our broker
acknowledges in order, so every parcel waits for a position in the stream of what we published. A
parcel that arrives again after it was confirmed is confirmed again: the confirmation was lost.

Source: docs/protocol.md 12.
"""

import struct
from collections import deque

import msgspec

from federator.errors import DecodeError
from federator.protocol.duplicates import DuplicateLog
from federator.protocol.types import BrokerId, Epoch

RANGES_MAX = 256

_PARCEL, _CONFIRMATION = 1, 2
_PARCEL_HEADER = struct.Struct(">BQQ")
_CONFIRMATION_HEADER = struct.Struct(">BQ")
_RANGE = struct.Struct(">QQ")
PARCEL_HEADER_BYTES = _PARCEL_HEADER.size


class Parcel(msgspec.Struct, frozen=True):
    """Publications for the members at the receiving broker."""

    epoch: Epoch  # the origin's, to which its number belongs
    number: int  # the origin's number for this receiver, from 1; 0: needs no confirmation
    run: memoryview  # PUBLISH packets; empty when the rules of a link on the way removed all


class Confirmation(msgspec.Struct, frozen=True):
    """Confirms parcels by number, in pairs of first and last: they are at the sender's broker."""

    epoch: Epoch
    ranges: tuple[tuple[int, int], ...]


def pack_parcel(epoch: Epoch, number: int) -> bytes:
    """The header of a parcel; its run follows."""
    return _PARCEL_HEADER.pack(_PARCEL, epoch, number)


def pack_confirmation(confirmation: Confirmation) -> bytes:
    """The wire form of a confirmation."""
    assert len(confirmation.ranges) <= RANGES_MAX
    head = _CONFIRMATION_HEADER.pack(_CONFIRMATION, confirmation.epoch)
    return head + b"".join(_RANGE.pack(first, last) for first, last in confirmation.ranges)


def unpack_parcel(body: memoryview) -> Parcel | Confirmation:
    """Decode the body of a frame for an inbox.

    Raises:
        DecodeError: It is neither.
    """
    kind = body[0] if len(body) else 0
    if kind == _PARCEL and len(body) >= PARCEL_HEADER_BYTES:
        _, epoch, number = _PARCEL_HEADER.unpack_from(body)
        return Parcel(epoch, number, body[PARCEL_HEADER_BYTES:])
    at = _CONFIRMATION_HEADER.size
    if kind == _CONFIRMATION and len(body) > at and not (len(body) - at) % _RANGE.size:
        _, epoch = _CONFIRMATION_HEADER.unpack_from(body)
        ranges = tuple(_RANGE.iter_unpack(body[at:]))
        if len(ranges) <= RANGES_MAX and all(first <= last for first, last in ranges):
            return Confirmation(epoch, ranges)
    raise DecodeError(f"parcel: {len(body)} bytes of kind {kind}")


_Name = tuple[BrokerId, Epoch, int]


class Arrivals:
    """Parcels that arrived, wait for our broker, or are to be confirmed."""

    def __init__(self) -> None:
        self._seen = DuplicateLog()
        self._open: set[_Name] = set()
        self._published: deque[tuple[int, _Name]] = deque()
        self._confirm: set[_Name] = set()

    @property
    def busy(self) -> bool:
        """Whether a parcel waits for our broker, or to be confirmed."""
        return bool(self._published or self._confirm)

    def admit(self, origin: BrokerId, epoch: Epoch, number: int, *, sender: BrokerId) -> bool:
        """Whether this parcel must be served; it then stays open until ``published``.

        ``sender``: the neighbour that sent it.
        """
        name = (origin, epoch, number)
        first, _ = self._seen.admit(origin, epoch, number, k=1, mask=1, sender=sender)
        if first:
            self._open.add(name)
        elif name not in self._open:
            self._confirm.add(name)
        return first

    def published(self, origin: BrokerId, epoch: Epoch, number: int, position: int) -> None:
        """Note that a parcel was published; our broker has it when it acknowledges ``position``."""
        self._published.append((position, (origin, epoch, number)))

    def settle(self, through: int) -> None:
        """Let parcels be confirmed: our broker acknowledged everything up to ``through``."""
        while self._published and self._published[0][0] <= through:
            _, name = self._published.popleft()
            self._open.discard(name)
            self._confirm.add(name)

    def confirmations(self) -> list[tuple[BrokerId, Confirmation]]:
        """The confirmations to send to each origin now."""
        numbers: dict[tuple[BrokerId, Epoch], list[int]] = {}
        for origin, epoch, number in sorted(self._confirm):
            numbers.setdefault((origin, epoch), []).append(number)
        self._confirm.clear()
        messages: list[tuple[BrokerId, Confirmation]] = []
        for (origin, epoch), of_origin in numbers.items():
            ranges = _ranges(of_origin)
            messages.extend(
                (origin, Confirmation(epoch, tuple(ranges[at : at + RANGES_MAX])))
                for at in range(0, len(ranges), RANGES_MAX)
            )
        return messages


def _ranges(numbers: list[int]) -> list[tuple[int, int]]:
    """Return ascending ``numbers`` as pairs of first and last."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges
