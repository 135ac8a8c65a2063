"""What travels to an inbox: a parcel of publications, or the confirmation of parcels.

The body of a frame whose key is an inbox's. A parcel is a header and a run of PUBLISH packets, as
in any other frame. Number 0 wants no confirmation: QoS 0.

Layout, big-endian: kind, epoch of the parcels' origin, then the number and the run, or up to
``RANGES_MAX`` pairs of first and last number.

Source: docs/protocol.md section 12.
"""

import struct
from dataclasses import dataclass

from federator.errors import DecodeError
from federator.protocol.types import Epoch

RANGES_MAX = 256

_PARCEL, _CONFIRMATION = 1, 2
_PARCEL_HEADER = struct.Struct(">BQQ")
_CONFIRMATION_HEADER = struct.Struct(">BQ")
_RANGE = struct.Struct(">QQ")
PARCEL_HEADER_BYTES = _PARCEL_HEADER.size


@dataclass(frozen=True, slots=True)
class Parcel:
    """Publications for the members at the receiving broker.

    Attributes:
        epoch: The origin's, in which it numbers.
        number: The origin's number for this receiver, from 1; 0 when no confirmation is wanted.
        run: PUBLISH packets; none when rules of a link on the way took all of them out.
    """

    epoch: Epoch
    number: int
    run: memoryview


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Our parcels with these numbers, in pairs of first and last, are with the sender's broker."""

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
    """What is in the body of a frame for an inbox.

    Raises:
        DecodeError: When it is neither.
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
