"""A frame: the payload of a PUBLISH between two agents.

A frame is a parcel with a label. The label says where the parcel was made, by which filters it was
routed, and for which of them this copy must still be forwarded; the parcel is the run of PUBLISH
packets exactly as the origin's broker sent them. A relay replaces the label and never opens the
parcel.

Layout, big-endian: the header below, ``k`` filter keys of 8 bytes (ascending), ``ceil(k / 8)`` mask
bytes, the body. Bit ``i`` of the mask is bit ``i % 8`` of byte ``i // 8``, so that the mask is a
little-endian integer. Frames under custody and tails have ``k`` chain numbers of 8 bytes after the
mask. A repair has, after those, the number of brokers it still has to pass in one byte, and their
ids in 4 bytes each. Then comes the proof of its origin, if it has one, after its length in 2 bytes.

Source: docs/protocol.md sections 8 and 11.
"""

import struct
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from federator.errors import DecodeError
from federator.protocol.types import BrokerId, Epoch

FRAME_VERSION = 2
CUSTODY_FLAG = 0x01  # the body holds QoS 1 or 2 packets; otherwise only QoS 0
TAIL_FLAG = 0x02  # names the heads of chains; no publications
REPAIR_FLAG = 0x04  # under custody, sent again for one broker
LAST_FLAG = 0x08  # the last repair of an answer
VOID_FLAG = 0x10  # a repair: its chain has nothing up to this number
TRACE_FLAG = 0x20  # forwarded like QoS 0, but holds no publications: see tracing
WORD_FLAG = 0x40  # a repair: the origin's word on numbers that were doubted
PROOF_FLAG = 0x80  # on the wire only: ``Frame.proof`` is not empty
KEY_BYTES = 8
CHAIN_BYTES = 8
ROUTE_MAX = 64
FRAME_FILTERS_MAX = 65_535
PUBLISH_BYTES_MIN = 6  # fixed header 2, topic length 2, a topic of 1, property length 1

# version, flags, hops, hop_limit, sender, origin, epoch, seq, origin_time_us, publications, k
_HEADER = struct.Struct(">BBBBIIQQQIH")
HEADER_BYTES = _HEADER.size

_REPAIR = CUSTODY_FLAG | REPAIR_FLAG
_KINDS = frozenset(
    {
        0,
        CUSTODY_FLAG,
        TAIL_FLAG,
        _REPAIR,
        _REPAIR | LAST_FLAG,
        _REPAIR | VOID_FLAG,
        _REPAIR | VOID_FLAG | LAST_FLAG,
        _REPAIR | WORD_FLAG,
        TRACE_FLAG,
    }
)


class Frame(msgspec.Struct, gc=False):
    """A decoded frame. One is made per arriving frame, so this is the fastest kind of class."""

    flags: int  # what kind of frame it is
    hops: int  # links travelled before the one it just came over
    hop_limit: int  # links it may travel
    sender: BrokerId  # the agent that sent this copy
    origin: BrokerId  # the agent that made the frame
    epoch: Epoch
    seq: int
    origin_time_us: int  # the origin's wall clock when it made the frame, in microseconds
    publications: int  # how many PUBLISH packets the body holds, as the origin says
    keys: bytes  # the filter keys as on the wire, ``KEY_BYTES`` each, ascending
    mask: int  # the filters that the receiver must forward for; bit ``i`` is the ``i``-th key
    # PUBLISH packets, back to back: a view of the bytes given to ``unpack``. A tail has the epoch
    # of its numbers here, in 8 bytes; for traces see ``tracing``, for words ``custody.doubts``.
    body: memoryview
    # Per key the number of a frame as on the wire, ``CHAIN_BYTES`` each: the frame before this one
    # on that filter, or in a tail the last one.
    chain: bytes = b""
    # The brokers that a repair has to pass after the receiver; the last one asked for it.
    route: tuple[BrokerId, ...] = ()
    proof: bytes = b""  # the origin's signature, with its certificate: see ``custody.proofs``
    # In a bundle: the position of this frame, and the order of all packets as (position of the
    # frame, how many of its packets come next). See ``bundles``.
    place: int = 0
    order: Sequence[tuple[int, int]] = ()

    @property
    def acknowledged(self) -> bool:
        """The body holds QoS 1 and 2 packets only; otherwise QoS 0 only."""
        return self.flags & CUSTODY_FLAG != 0

    @property
    def k(self) -> int:
        """How many filters the frame was routed by."""
        return len(self.keys) // KEY_BYTES


class OwnFrames:
    """Numbers and labels the frames that we are the origin of."""

    def __init__(self, self_id: BrokerId, epoch: Epoch, hop_limit: int) -> None:
        if not 1 <= hop_limit <= 255:
            raise ValueError(f"hop_limit must be 1 to 255, got {hop_limit}")
        self.self_id = self_id
        self.hop_limit = hop_limit  # links that our frames may travel
        self.epoch = epoch  # the epoch of frames that are not under custody
        self.seq = 0
        self._plain = self.label(0, epoch, 0, 0, 0, b"", b"")

    def renew(self, epoch: Epoch) -> None:
        """Number from 1, in a new epoch."""
        self.epoch = self._plain.epoch = epoch
        self.seq = 0

    def number(self) -> tuple[Epoch, int]:
        """Epoch and number for a frame that is not under custody."""
        self.seq += 1
        return self.epoch, self.seq

    def plain(self, keys: bytes, count: int, time_us: int) -> Frame:
        """The next frame of ``count`` publications of QoS 0, without its body.

        One object, filled in again for each call: use it before the next call.
        """
        self.seq += 1
        frame = self._plain
        frame.seq = self.seq
        frame.origin_time_us = time_us
        frame.publications = count
        frame.keys = keys
        return frame

    def label(
        self, flags: int, epoch: Epoch, seq: int, time_us: int, count: int, keys: bytes, body: bytes
    ) -> Frame:
        """A frame of ours of any kind."""
        me, limit, mask = self.self_id, self.hop_limit, (1 << len(keys) // KEY_BYTES) - 1
        whole = memoryview(body)
        return Frame(flags, 0, limit, me, me, epoch, seq, time_us, count, keys, mask, whole)


def mask_bytes(mask: int, k: int) -> bytes:
    """The wire form of a mask over ``k`` filters."""
    return mask.to_bytes((k + 7) // 8, "little")


def label_bytes(keys: bytes) -> int:
    """The length of a frame's label, without the fields that only frames under custody have."""
    return HEADER_BYTES + len(keys) + (len(keys) // KEY_BYTES + 7) // 8


def pack_label(frame: Frame, *, hops: int, sender: BrokerId, mask: bytes) -> bytes:
    """The label of ``frame``: everything before the body, for its next hop.

    ``hops``: the links travelled so far; ``mask``: what the next hop must forward, as on the wire.
    """
    keys = frame.keys
    label = (
        _HEADER.pack(
            FRAME_VERSION,
            frame.flags | PROOF_FLAG if frame.proof else frame.flags,
            hops,
            frame.hop_limit,
            sender,
            frame.origin,
            frame.epoch,
            frame.seq,
            frame.origin_time_us,
            frame.publications,
            len(keys) // KEY_BYTES,
        )
        + keys
        + mask
    )
    if frame.flags & ~TRACE_FLAG:
        label += frame.chain
        if frame.flags & REPAIR_FLAG:
            route = frame.route
            label += struct.pack(f">B{len(route)}I", len(route), *route)
        if frame.proof:
            label += len(frame.proof).to_bytes(2, "big") + frame.proof
    return label


def pack(frame: Frame) -> bytes:
    mask = mask_bytes(frame.mask, frame.k)
    return pack_label(frame, hops=frame.hops, sender=frame.sender, mask=mask) + frame.body


def unpack(payload: bytes) -> Frame:
    """The frame in ``payload``. The packets of its body are not checked.

    Raises:
        DecodeError: A field is out of range or contradicts another.
    """
    size = len(payload)
    if size < HEADER_BYTES:
        raise DecodeError(f"frame: {size} bytes, at least {HEADER_BYTES} wanted")
    (version, flags, hops, hop_limit, sender, origin, epoch, seq, time_us, publications, k) = (
        _HEADER.unpack_from(payload)
    )
    if version != FRAME_VERSION:
        raise DecodeError(f"frame: version {version}, {FRAME_VERSION} wanted")
    is_proven = flags > PROOF_FLAG
    if is_proven:
        flags ^= PROOF_FLAG
    if flags not in _KINDS or (is_proven and flags == TRACE_FLAG):
        raise DecodeError(f"frame: flags {flags:#04x} are no kind of frame")
    if hops >= hop_limit:
        raise DecodeError(f"frame: {hops} hops of at most {hop_limit}")
    if not k:
        raise DecodeError("frame: no filters, at least 1 wanted")
    mask_at = HEADER_BYTES + k * KEY_BYTES
    body_at = mask_at + (k + 7) // 8
    chain = proof = b""
    route: tuple[BrokerId, ...] = ()
    if flags == TRACE_FLAG:
        if publications:
            raise DecodeError(f"frame: a trace of {publications} publications")
    elif flags:
        chain_at, body_at = body_at, body_at + k * CHAIN_BYTES
        chain = payload[chain_at:body_at]
        if flags & REPAIR_FLAG:
            route, body_at = _route(payload, body_at)
        if is_proven:
            proof_at = body_at + 2
            body_at = proof_at + int.from_bytes(payload[body_at:proof_at], "big")
            proof = payload[proof_at:body_at]
            if not proof or body_at > size:
                raise DecodeError("frame: without the proof that it announces")
    if size - body_at < publications * PUBLISH_BYTES_MIN or not (publications or flags):
        held = max(0, size - body_at)
        raise DecodeError(f"frame: {held} bytes hold {publications} publications")
    mask = int.from_bytes(payload[mask_at : mask_at + (k + 7) // 8], "little")
    if not mask or mask >> k:
        raise DecodeError(f"frame: mask {mask:#x} over {k} filters")
    keys = payload[HEADER_BYTES:mask_at]
    if k > 1:
        _check_ascending(keys, k)
    body = memoryview(payload)[body_at:]
    frame = Frame(
        flags, hops, hop_limit, sender, origin, epoch, seq, time_us, publications, keys, mask, body
    )
    frame.chain, frame.route, frame.proof = chain, route, proof
    return frame


def chain_numbers(frame: Frame) -> tuple[int, ...]:
    """The numbers in ``frame.chain``, one per key."""
    return struct.unpack(f">{frame.k}Q", frame.chain)


def chain_bytes(numbers: Sequence[int]) -> bytes:
    """The wire form of ``numbers``, for ``Frame.chain``."""
    return struct.pack(f">{len(numbers)}Q", *numbers)


def keys_in(keys: bytes) -> list[bytes]:
    """The single keys in ``keys``, which has them back to back."""
    return [keys[at : at + KEY_BYTES] for at in range(0, len(keys), KEY_BYTES)]


def _route(payload: bytes, at: int) -> tuple[tuple[BrokerId, ...], int]:
    """The brokers that a repair has to pass, and where the body begins."""
    count = payload[at] if at < len(payload) else ROUTE_MAX + 1
    end = at + 1 + 4 * count
    if count > ROUTE_MAX or end > len(payload):
        raise DecodeError("frame: a repair without its route")
    route = struct.unpack(f">{count}I", payload[at + 1 : end])
    return tuple(BrokerId(id) for id in route), end


def _check_ascending(keys: bytes, k: int) -> None:
    numbers = struct.unpack(f">{k}Q", keys)
    if any(a >= b for a, b in pairwise(numbers)):
        raise DecodeError("frame: filter keys are not ascending")
