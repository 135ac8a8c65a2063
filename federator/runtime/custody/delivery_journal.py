"""What we are about to publish on our broker, written down before: a write-ahead journal.

Think of a postman who notes each letter before dropping it into the box, and now and then drops in
a slip with the number of his last note (the *marker*). The slip in the box proves that every letter
noted up to it is in the box too; the rest must be delivered again.

Other clients may reach into the box. So a marker is proven with a key that only the journal has,
and the journal notes the newest one that was seen in the box: an older one, put back, is ignored.

An entry says that a frame of an origin goes to the local subscribers of some filters. The entries
add up to a *position* for each (origin, filter): epoch and number of the last frame delivered, with
some before. A snapshot replaces entries by positions, but only entries covered by a marker: later
ones stay, so that we can distinguish a marker lost with our broker from one that arrived.

Numbers of entries are never reused, like those of the custody log: when the end of the file may be
lost, they leap ahead, and every marker written before covers all entries before.

Layout, little-endian. Header, twice: magic, journal id, boot, the number up to which entries are
folded, a number below which no new entry gets one, bytes of the snapshot, the key, CRC-32. Then
pieces (``storage.damage``); damage to one costs only that one. Pieces of the snapshot: since when a
filter key is wanted; where a chain is: origin, key, epoch, seq, those before. Batches: number of
the first entry, entries. Entry: origin, epoch, seq, number of keys, keys. A batch without entries
holds the number of a marker. A journal of an older release (``feddelv1``) is rewritten.
"""

import errno
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from hashlib import blake2b
from hmac import compare_digest
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import msgspec

from federator.protocol.custody import ports
from federator.protocol.forwarding.frames import KEY_BYTES, keys_in
from federator.protocol.types import BrokerId
from federator.runtime.storage import damage, durable

BYTES_MAX = 2 * 1024 * 1024
FOLD_BYTES = 262_144
"""Bytes of entries covered by a marker: a snapshot is due once they exceed this and the last
snapshot. Each entry costs 2 us then."""

FILE_NAME = "deliveries"
CONFIG_KEY = "custody"
MARKER_BYTES_MAX = 80
KEY_DRAWN_BYTES = 32
PROOF_BYTES = 16

_MAGIC, _FORMER_MAGIC = b"feddelv2", b"feddelv1"
_HEADER = struct.Struct(f"<8sQ{durable.BOOT_BYTES}sQQI{KEY_DRAWN_BYTES}s")
_HEADER_BYTES = 2 * (_HEADER.size + 4)
_FORMER_HEADER = struct.Struct(f"<8sQ{durable.BOOT_BYTES}sQQII")
_POSITION = struct.Struct(f"<I{KEY_BYTES}s")  # origin, key; epoch, seq and the steps before follow
_POSITIONS = [struct.Struct(f"<I{KEY_BYTES}s{n}Q") for n in range(2 + ports.UNDO_MAX + 1)]
_SINCE = struct.Struct(f"<{KEY_BYTES}sq")
_BATCH = struct.Struct("<QI")  # number of the first entry, count of entries
_ENTRY = struct.Struct("<IQQI")  # origin, epoch, seq, keys
_MARKED = _STEP = struct.Struct("<Q")
_MARK_BYTES = _BATCH.size + _MARKED.size + damage.PIECE_BYTES
"""Size of a batch with the number of a marker: smaller than any other."""

_NO_KEY = bytes(KEY_DRAWN_BYTES)
_BEFORE = _BEHIND = damage.PIECE_BYTES // 2
"""Bytes of a piece before and behind its content."""

Positions = dict[tuple[BrokerId, bytes], tuple[int, ...]]
"""As in ``ports``."""


class Entry(NamedTuple):
    """A delivery as journalled."""

    number: int
    origin: BrokerId
    epoch: int
    seq: int
    keys: bytes


class Contents(NamedTuple):
    """The sound part of a journal."""

    raw: bytes
    header: "_Header"
    positions: Positions  # where each chain was after the folded entries
    since_us: dict[bytes, int]  # filter key -> wall clock in us when our clients subscribed
    batches: list[tuple[int, int]]  # where each later batch begins and ends in ``raw``, in order

    def entries(self, batches: slice = slice(None)) -> Iterator[Entry]:
        """The entries that are not folded, or those of some batches."""
        for at, _ in self.batches[batches]:
            first, count = _BATCH.unpack_from(self.raw, at)
            at += _BATCH.size
            for number in range(first, first + count):
                origin, epoch, seq, k = _ENTRY.unpack_from(self.raw, at)
                keys_at = at + _ENTRY.size
                at = keys_at + KEY_BYTES * k
                yield Entry(number, origin, epoch, seq, self.raw[keys_at:at])

    def last(self, at: int) -> int:
        """The number of the last entry of the batch at ``at``, or before it if it has none."""
        first, count = _BATCH.unpack_from(self.raw, at)
        return int(first) + int(count) - 1

    @property
    def marked(self) -> int:
        """The newest marker that our broker is known to have had; 0: unknown."""
        marks = (at for at, _ in reversed(self.batches) if not _BATCH.unpack_from(self.raw, at)[1])
        at = next(marks, None)
        return 0 if at is None else _MARKED.unpack_from(self.raw, at + _BATCH.size)[0]


def _folded(
    positions: Positions,
    entries: Iterable[Entry],
    *,
    only: AbstractSet[tuple[BrokerId, bytes]] | None = None,
) -> Positions:
    """Move ``positions`` by ``entries``, those of the chains ``only``; no chain ever goes back."""
    for _, origin, epoch, seq, keys in entries:
        for key in keys_in(keys):
            at = origin, key
            if only is None or at in only:
                positions[at] = ports.moved(positions.get(at, (0, 0)), epoch, seq)
    return positions


class _FormerSnapshot(msgspec.Struct, array_like=True, frozen=True):
    """The part before the batches in a journal of an older release."""

    positions: list[tuple[BrokerId, bytes, int, int]]  # origin, key, epoch, seq
    since_us: list[tuple[bytes, int]]
    key: bytes = b""
    steps: list[tuple[int, ...]] = []  # of each position, the ones before


@dataclass(eq=False, repr=False)
class DeliveryJournal:
    """The journal of one agent, for one thread.

    The file holds the snapshot and at most twice ``bytes_max`` of entries. Memory holds neither.

    Args:
        bytes_max: Bound of the entries. Call ``snapshot`` when ``is_due``, or ``append`` does. A
            snapshot keeps half of it for entries without a marker; older ones count as delivered.

    Raises:
        ConfigError: The folder cannot be used.
        OSError: From every method: the disk is full or broken. The file is as before.
    """

    folder: Path  # created if missing
    bytes_max: int = BYTES_MAX
    boot: bytes | None = None  # identifies this boot of the machine; read by default

    def __post_init__(self) -> None:
        folder = self.folder
        self._file = durable.AppendedFile(folder / FILE_NAME)
        self.close = self._file.close
        boot = self.boot or durable.this_boot()
        self._boot = boot or bytes(durable.BOOT_BYTES)
        self.journal_id = 0  # 64 random bits, drawn when the file is made
        self.last = 0  # number of the last entry
        self._mark_lost = False  # the number of a marker was damaged
        self._tail_at = 0  # where the first batch begins
        self._marked_at = 0  # end of the entries with a marker that our broker is known to have
        self._key = b""
        self._takes_unproven = False  # the newest marker may be from an older release
        durable.private_folder(folder, key=CONFIG_KEY)
        try:
            self._recover(known_boot=boot is not None)
        except OSError as error:
            raise durable.unusable(folder, error, key=CONFIG_KEY) from error

    @property
    def is_due(self) -> bool:
        foldable = self._marked_at - self._tail_at >= max(FOLD_BYTES, self._tail_at)
        return foldable or self._file.size - self._tail_at >= self.bytes_max

    def append(self, deliveries: Sequence[ports.Delivered]) -> int:
        """Write down the next deliveries at once; return the number of the last entry.

        A position that arises without a delivery may be entered as if it were one.
        """
        if not deliveries:
            return self.last
        if self._file.size - self._tail_at >= 2 * self.bytes_max:
            self.snapshot(None, None, folded_to=0)
        parts = []
        for origin, epoch, seq, keys in deliveries:
            parts.append(_ENTRY.pack(origin, epoch, seq, len(keys) // KEY_BYTES))
            parts.append(keys)
        self._write_batch(b"".join(parts), len(deliveries))
        return self.last

    def note_marked(self, number: int) -> None:
        """Write down that our broker has the marker ``number``: older ones no longer count.

        Raises:
            OSError: The disk is full or broken; nothing is noted.
        """
        self._write_batch(_MARKED.pack(number), 0)
        if number == self.last:
            self._marked_at = self._file.size

    def _write_batch(self, entries: bytes, count: int) -> None:
        self._file.append(damage.piece(_BATCH.pack(self.last + 1, count) + entries))
        self.last += count

    def load(self) -> Contents:
        """What is sound in the file."""
        contents, lost_bytes = self._parsed(self._file.read())
        self._tell_lost(lost_bytes)
        return contents

    def since_us(self) -> dict[bytes, int]:
        """By filter key, since when our clients want it, as of the last snapshot."""
        return self.load().since_us

    def positions(self, marker: int | None) -> Positions:
        """The position of each chain after the entries up to ``marker``.

        The newest marker that our broker is known to have counts instead of an older or missing
        one. Without either, all entries were delivered.
        """
        contents = self.load()
        all_were = marker is None and not contents.marked and not self._mark_lost
        to = max(marker or 0, contents.marked)
        delivered = (e for e in contents.entries() if all_were or e.number <= to)
        return _folded(contents.positions, delivered)

    def resume(self, marker: int | None) -> Positions:
        """Begin again behind ``marker``, with ``positions``; at start, before any ``append``.

        Later entries are deleted: their frames will be entered again, one by one, and until then a
        later marker must not cover them.
        """
        positions = self.positions(marker)
        self.snapshot(positions, None, folded_to=self.last)
        self._mark_lost = False
        return positions

    def snapshot(
        self,
        positions: ports.Positions | None,
        since_us: Mapping[bytes, int] | None,
        *,
        folded_to: int,
    ) -> None:
        """Replace entries by positions: written aside, synchronised, put in place.

        Entries after ``folded_to`` stay. A chain with such entries is written at its position
        before them, as the journal knows it; every other one as in ``positions``. Chains that are
        not in ``positions`` are forgotten.

        Args:
            positions: Where each chain is with all entries delivered; ``None``: as the journal
                knows.
            since_us: Filter key -> since when our clients want it; ``None``: as before.
            folded_to: The number of the newest marker that our broker is known to have.
        """
        contents = self.load()
        cut, folded, gone = self._tail_at, contents.header.folded_to, 0
        for at, end in contents.batches:
            fits = self._file.size - (at - _BEFORE) <= self.bytes_max // 2
            if contents.last(at) > folded_to and fits:
                break
            cut, folded, gone = end + _BEHIND, contents.last(at), gone + 1
        if positions is None:
            before = _folded(dict(contents.positions), contents.entries(slice(gone)))
        else:
            later = contents.entries(slice(gone, None))
            begun = {(entry.origin, key) for entry in later for key in keys_in(entry.keys)}
            current = {at: place for at, place in contents.positions.items() if at in begun}
            current = _folded(current, contents.entries(slice(gone)), only=begun)
            before = {at: positions[at] for at in positions if at not in begun}
            before |= {at: current[at] for at in current if at in positions}
        since = contents.since_us if since_us is None else since_us
        self._write(_encode_snapshot(before, since), contents.raw[cut:], folded_to=folded)

    def marker(self) -> bytes:
        """The marker to publish behind the last entry."""
        text = b"%016x|%d" % (self.journal_id, self.last)
        return b"%s|%s" % (text, self._proof(text))

    def read_marker(self, payload: bytes) -> int | None:
        """The number in a marker of this journal; ``None`` for anything else."""
        journal_id, _, rest = payload.partition(b"|")
        number, bar, proof = rest.partition(b"|")
        if len(payload) > MARKER_BYTES_MAX or not number.isdigit():
            return None
        text = payload[: len(journal_id) + 1 + len(number)]
        proven = compare_digest(proof, self._proof(text)) if bar else self._takes_unproven
        return int(number) if proven and journal_id == b"%016x" % self.journal_id else None

    def _proof(self, message: bytes) -> bytes:
        return blake2b(message, key=self._key, digest_size=PROOF_BYTES).hexdigest().encode()

    # Within

    def _write(self, snapshot: bytes, batches: bytes, *, folded_to: int) -> None:
        """Put a complete file in place."""
        fields = (self.journal_id, self._boot, folded_to, self.last + 1, len(snapshot), self._key)
        self._file.replace(_Header(*fields).pack(), snapshot, batches, sync=True)
        self._tail_at = _HEADER_BYTES + len(snapshot)
        self._marked_at = 0

    def _recover(self, *, known_boot: bool) -> None:
        is_new = not self._file.path.exists()
        content = self._file.read()
        former = _renewed(content)
        content = former or content
        header = _Header.of(content)
        if header is None:
            if not is_new:
                reason = "neither of its headers is sound"
                damage.tell(self._file.path, reason, lost_bytes=len(content))
            self.journal_id = int.from_bytes(os.urandom(8))
            self._key = os.urandom(KEY_DRAWN_BYTES)
            self._write(b"", b"", folded_to=0)
            return
        self.journal_id = header.journal_id
        self._takes_unproven = header.key == _NO_KEY
        self._key = os.urandom(KEY_DRAWN_BYTES) if self._takes_unproven else header.key
        contents, lost_bytes = self._parsed(content)
        last_numbers = (contents.last(at) for at, _ in contents.batches)
        self.last = max(header.next_number - 1, *last_numbers, 0)
        if not damage.are_same(content, _HEADER.size):
            lost_bytes += _HEADER.size
        leaps = bool(lost_bytes) or damage.is_gone(self.folder)
        leaps = leaps or not known_boot or header.boot != self._boot
        self._tell_lost(lost_bytes)
        if leaps or former:
            self.last += durable.LEAP if leaps else 0
            batches = (content[at - _BEFORE : end + _BEHIND] for at, end in contents.batches)
            snapshot = _encode_snapshot(contents.positions, contents.since_us)
            self._write(snapshot, b"".join(batches), folded_to=header.folded_to)
        else:
            self._tail_at = header.end
            self._file.open()

    def _parsed(self, content: bytes) -> tuple[Contents, int]:
        """What is sound in ``content``, and how many bytes are not.

        Raises:
            OSError: Neither header is sound; one was when we opened or wrote the file.
        """
        header = _Header.of(content)
        if header is None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        lost_bytes = 0

        def on_lost(start: int, end: int) -> None:
            nonlocal lost_bytes
            lost_bytes += end - start
            self._mark_lost |= end - start == _MARK_BYTES

        contents = Contents(content, header, {}, {}, [])
        for at, end in damage.read_pieces(content, _HEADER_BYTES, header.end, on_lost):
            if end - at == _SINCE.size:
                key, at_us = _SINCE.unpack_from(content, at)
                contents.since_us[key] = at_us
            else:
                steps = (end - at - _POSITION.size) // _STEP.size
                origin, key, *position = _POSITIONS[steps].unpack_from(content, at)
                contents.positions[origin, key] = tuple(position)
        number = header.folded_to + 1
        for at, end in damage.read_pieces(content, header.end, len(content), on_lost):
            if _BATCH.unpack_from(content, at)[0] >= number:
                contents.batches.append((at, end))
                number = contents.last(at) + 1
        return contents, lost_bytes

    def _tell_lost(self, lost_bytes: int) -> None:
        if lost_bytes:
            reason = "some of what it says is damaged"
            damage.tell(self._file.path, reason, lost_bytes=lost_bytes)


class _Header(NamedTuple):
    journal_id: int
    boot: bytes
    folded_to: int
    next_number: int
    snapshot_bytes: int
    key: bytes  # _NO_KEY in a journal of an older release

    @classmethod
    def of(cls, content: bytes) -> "_Header | None":
        """The header of ``content``, if one of both copies is sound."""
        header = damage.either(content, _HEADER.size)
        magic, *fields = _HEADER.unpack(header) if header else (b"",)
        return cls(*fields) if magic == _MAGIC else None

    @property
    def end(self) -> int:
        """Where the first batch begins."""
        return _HEADER_BYTES + self.snapshot_bytes

    def pack(self) -> bytes:
        return damage.twice(_HEADER.pack(_MAGIC, *self))


def _renewed(content: bytes) -> bytes | None:
    """A journal of an older release in our format; ``None`` for any other."""
    if len(content) < _FORMER_HEADER.size:
        return None
    magic, *fields, checksum = _FORMER_HEADER.unpack_from(content)
    end = _FORMER_HEADER.size + fields[-1]
    snapshot_bytes = content[_FORMER_HEADER.size : end]
    sound = crc32(snapshot_bytes, crc32(_FORMER_HEADER.pack(magic, *fields, 0))) == checksum
    if magic != _FORMER_MAGIC or not sound:
        return None
    former = msgspec.msgpack.decode(snapshot_bytes, type=_FormerSnapshot)
    rows = zip_longest(former.positions, former.steps, fillvalue=())  # older ones lack steps
    positions: Positions = {(row[0], row[1]): (*row[2:], *before) for row, before in rows if row}
    snapshot = _encode_snapshot(positions, dict(former.since_us))
    journal_id, boot, folded_to, next_number, _ = fields
    key = former.key or _NO_KEY
    header = _Header(journal_id, boot, folded_to, next_number, len(snapshot), key)
    return header.pack() + snapshot + content[end:]


def _encode_snapshot(positions: ports.Positions, since_us: Mapping[bytes, int]) -> bytes:
    piece = damage.piece
    pieces = [piece(_SINCE.pack(key, at_us)) for key, at_us in since_us.items()]
    for (origin, key), at in positions.items():
        pieces.append(piece(_POSITIONS[len(at)].pack(origin, key, *at)))
    return b"".join(pieces)
