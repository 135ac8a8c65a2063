"""What we are about to hand to our broker, written down before we do: a write-ahead journal.

Think of a postman who notes each letter before dropping it into the box, and now and then drops in
a slip with the number of his last note (the *marker*). Whoever finds the slip in the box knows that
every letter noted up to there is in the box too, and that the rest must be delivered again.

Others may reach into the box. So a marker is proven with a key that only the journal has, and the
journal notes the newest one that the box is known to have had: an older one, put back, is ignored.

An entry says that a frame of an origin goes to the local subscribers of some filters. What it all
comes to is a *position* for each (origin, filter): epoch and number of the last frame delivered,
with some before. A snapshot replaces entries by positions, but only entries that a marker is known
for: those after stay, so that a marker that was lost with our broker can still be told from one
that arrived.

Numbers of entries are never used twice, as those of the custody log: when the end of the file may
be lost, they leap ahead, and every marker written before speaks of all entries before.

Layout, little-endian. Header: magic, journal id, boot, the number up to which entries are folded, a
number that none below will be given to an entry, bytes of the snapshot, CRC-32 of all of it; the
snapshot in MessagePack. Batches: bytes, number of the first entry, entries, CRC-32. Entry: origin,
epoch, seq, number of keys, keys. A batch of no entries holds the number of a marker.
"""

import errno
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from hashlib import blake2b
from hmac import compare_digest
from itertools import chain, zip_longest
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import msgspec

from federator.protocol.custody import ports
from federator.protocol.forwarding.frames import KEY_BYTES, keys_in
from federator.protocol.types import BrokerId
from federator.runtime.storage import durable
from federator.runtime.storage.durable import write_at

BYTES_MAX = 2 * 1024 * 1024
FOLD_BYTES = 262_144
"""Of entries that a marker is known for: with so many, and as long as it will be, a snapshot is
due. Each costs 2 us then."""

FILE_NAME = "deliveries"
CONFIG_KEY = "custody"
MARKER_BYTES_MAX = 80
KEY_DRAWN_BYTES = 32
PROOF_BYTES = 16

_MAGIC = b"feddelv1"
_HEADER = struct.Struct(f"<8sQ{durable.BOOT_BYTES}sQQII")
_BATCH = struct.Struct("<IQI")  # bytes in all, number of the first entry, entries
_ENTRY = struct.Struct("<IQQI")  # origin, epoch, seq, keys
_MARKED = struct.Struct("<Q")
_CRC = struct.Struct("<I")

Positions = dict[tuple[BrokerId, bytes], tuple[int, ...]]
"""As in ``ports``."""


class Entry(NamedTuple):
    """A delivery as journalled."""

    number: int
    origin: BrokerId
    epoch: int
    seq: int
    keys: bytes


class JournalState(NamedTuple):
    """What a journal holds."""

    folded_to: int  # entries up to this number are in ``positions``
    positions: Positions  # where each chain was then
    entries: tuple[Entry, ...]  # those after, in order
    since_us: dict[bytes, int]  # filter key -> wall clock in us when our clients began to want it
    marked: int  # the newest marker that our broker is known to have had; 0: not known
    key: bytes  # proves markers; empty in a journal of an older release


class _Snapshot(msgspec.Struct, array_like=True, frozen=True):
    positions: list[tuple[BrokerId, bytes, int, int]]  # origin, key, epoch, seq
    since_us: list[tuple[bytes, int]]
    key: bytes = b""
    steps: list[tuple[int, ...]] = []  # of each position, those before


@dataclass(eq=False, repr=False)
class DeliveryJournal:
    """The journal of one agent, for one thread.

    The file holds the snapshot and at most twice ``bytes_max`` of entries. Nothing of it is kept in
    memory.

    Args:
        bytes_max: Of entries. Call ``snapshot`` when ``is_due``; without, ``append`` does it. A
            snapshot keeps half of it for entries without a marker; older ones count as delivered.

    Raises:
        ConfigError: The folder cannot be used.
        OSError: From every method: the disk is full or broken. The file is as before.
    """

    folder: Path  # made when missing
    bytes_max: int = BYTES_MAX
    boot: bytes | None = None  # tells this boot of the machine from others; asked by default

    def __post_init__(self) -> None:
        folder = self.folder
        self._path = folder / FILE_NAME
        boot = self.boot or durable.this_boot()
        self._boot = boot or bytes(durable.BOOT_BYTES)
        self.journal_id = 0  # of 64 random bits, drawn when the file is made
        self.last = 0  # number of the last entry
        self.lost_bytes = 0  # found damaged when it was opened, and cut off
        self._fd = -1
        self._tail_at = self._size = 0
        self._marked_at = 0  # where the entries end of which our broker is known to have the marker
        self._key = b""
        self._takes_unproven = False  # the newest marker may be of an older release
        durable.private_folder(folder, key=CONFIG_KEY)
        try:
            self._recover(known_boot=boot is not None)
        except OSError as error:
            raise durable.unusable(folder, error, key=CONFIG_KEY) from error

    @property
    def is_due(self) -> bool:
        """Whether it is time for a snapshot."""
        foldable = self._marked_at - self._tail_at >= max(FOLD_BYTES, self._tail_at)
        return foldable or self._size - self._tail_at >= self.bytes_max

    def append(self, deliveries: Sequence[ports.Delivered]) -> int:
        """Write down what is delivered next, at once; the number of the last entry.

        A position that comes about without a delivery may be entered as if it were one.
        """
        if not deliveries:
            return self.last
        if self._size - self._tail_at >= 2 * self.bytes_max:
            self.snapshot(None, None, folded_to=0)
        parts = []
        for origin, epoch, seq, keys in deliveries:
            parts.append(_ENTRY.pack(origin, epoch, seq, len(keys) // KEY_BYTES))
            parts.append(keys)
        self._write_batch(b"".join(parts), len(deliveries))
        return self.last

    def note_marked(self, number: int) -> None:
        """Write down that our broker has the marker ``number``: older ones count no more.

        Raises:
            OSError: The disk is full or broken; nothing is noted.
        """
        self._write_batch(_MARKED.pack(number), 0)
        if number == self.last:
            self._marked_at = self._size

    def _write_batch(self, entries: bytes, count: int) -> None:
        size = _BATCH.size + len(entries) + _CRC.size
        content = _BATCH.pack(size, self.last + 1, count) + entries
        write_at(self._fd, content + _CRC.pack(crc32(content)), self._size)
        self._size += size
        self.last += count

    def load(self) -> JournalState:
        """All that is in the file."""
        return _state(self._read())

    def since_us(self) -> dict[bytes, int]:
        """Since when our clients want what, as of the last snapshot."""
        return dict(self.load().since_us)

    def positions(self, marker: int | None) -> Positions:
        """Where each chain is when entries up to ``marker`` were delivered.

        No older marker counts than the newest that our broker was known to have, which counts when
        there is none at all. Where that was never known, all were delivered.
        """
        state = self.load()
        all_were = marker is None and not state.marked
        to = None if all_were else max(marker or 0, state.marked)
        return _fold(state.positions, (e for e in state.entries if to is None or e.number <= to))

    def resume(self, marker: int | None) -> Positions:
        """Begin again behind ``marker``, with ``positions``; at start, before any ``append``.

        Entries after it are struck out: their frames will be entered again, one by one, and until
        then a later marker must not speak for them.
        """
        positions = self.positions(marker)
        self.snapshot(positions, None, folded_to=self.last)
        return positions

    def snapshot(
        self,
        positions: ports.Positions | None,
        since_us: Mapping[bytes, int] | None,
        *,
        folded_to: int,
    ) -> None:
        """Replace entries by positions: written aside, synchronised, put in place.

        Entries after ``folded_to`` stay. A chain that one of them speaks of is written down as it
        was before them, as the journal knows it; every other one as in ``positions``. Chains that
        are not in ``positions`` are forgotten.

        Args:
            positions: Where each chain is with all entries delivered; ``None``: as the journal
                knows.
            since_us: Filter key -> since when our clients want it; ``None``: as before.
            folded_to: The number of the newest marker that our broker is known to have.
        """
        content = self._read()
        header, known, saved = _folded(content)
        batches = list(_sound_batches(content))
        cut, folded, stays = self._tail_at, header.folded_to, 0
        for at in batches:
            size, first, count = _BATCH.unpack_from(content, at)
            if first + count - 1 > folded_to and self._size - at <= self.bytes_max // 2:
                break
            cut, folded, stays = at + size, first + count - 1, stays + 1
        gone = chain.from_iterable(_entries(content, at) for at in batches[:stays])
        if positions is None:
            before: ports.Positions = _fold(known, gone)
        else:
            later = _chains(content, batches[stays:])
            known = _fold({at: known[at] for at in later if at in known}, gone, only=later)
            before = {at: positions[at] for at in positions if at not in later}
            before |= {at: known[at] for at in known if at in positions}
        wanted = dict(saved.since_us) if since_us is None else since_us
        self._write(self._encode_snapshot(before, wanted), content[cut:], folded_to=folded)

    def marker(self, number: int | None = None) -> bytes:
        """What to leave at our broker behind the entry ``number``; the last one by default."""
        said = b"%016x|%d" % (self.journal_id, self.last if number is None else number)
        return b"%s|%s" % (said, self._proof(said))

    def read_marker(self, payload: bytes) -> int | None:
        """The number in a marker of this journal; ``None`` for anything else."""
        journal_id, _, rest = payload.partition(b"|")
        number, bar, proof = rest.partition(b"|")
        if len(payload) > MARKER_BYTES_MAX or not number.isdigit():
            return None
        said = payload[: len(journal_id) + 1 + len(number)]
        proven = compare_digest(proof, self._proof(said)) if bar else self._takes_unproven
        return int(number) if proven and journal_id == b"%016x" % self.journal_id else None

    def _proof(self, said: bytes) -> bytes:
        return blake2b(said, key=self._key, digest_size=PROOF_BYTES).hexdigest().encode()

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    # Within

    def _read(self) -> bytes:
        return os.pread(self._fd, self._size, 0)

    def _write(self, snapshot: bytes, batches: bytes, *, folded_to: int) -> None:
        """Put a whole file in place."""
        header = _Header(self.journal_id, self._boot, folded_to, self.last + 1, len(snapshot))
        parts = [header.pack(snapshot), snapshot, batches]
        fd = durable.replace_file(self._path, parts, sync=True)
        self.close()
        self._fd = fd
        self._tail_at = _HEADER.size + len(snapshot)
        self._size = self._tail_at + len(batches)
        self._marked_at = 0

    def _recover(self, *, known_boot: bool) -> None:
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            content = b""
        header = _Header.of(content)
        if header is None:
            self.lost_bytes = len(content)
            self.journal_id = int.from_bytes(os.urandom(8))
            self._key = os.urandom(KEY_DRAWN_BYTES)
            self._write(self._encode_snapshot({}, {}), b"", folded_to=0)
            return
        self.journal_id = header.journal_id
        self.last = header.next_number - 1
        self._tail_at = self._size = header.end
        for at in _sound_batches(content):
            size, first, count = _BATCH.unpack_from(content, at)
            self._size = at + size
            self.last = max(self.last, first + count - 1)
        self.lost_bytes = len(content) - self._size
        state = _state(content)
        self._takes_unproven = not state.key
        self._key = state.key or os.urandom(KEY_DRAWN_BYTES)
        leaps = bool(self.lost_bytes) or not known_boot or header.boot != self._boot
        if leaps or self._takes_unproven:
            self.last += durable.LEAP if leaps else 0
            snapshot = self._encode_snapshot(state.positions, state.since_us)
            batches = content[header.end : self._size]
            self._write(snapshot, batches, folded_to=header.folded_to)
        else:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)

    def _encode_snapshot(
        self,
        positions: ports.Positions,
        since_us: Mapping[bytes, int],
    ) -> bytes:
        rows = [(*chain, at[0], at[1]) for chain, at in positions.items()]
        steps = [at[2:] for at in positions.values()]
        return msgspec.msgpack.encode(_Snapshot(rows, list(since_us.items()), self._key, steps))


class _Header(NamedTuple):
    journal_id: int
    boot: bytes
    folded_to: int
    next_number: int
    snapshot_bytes: int

    @classmethod
    def of(cls, content: bytes) -> "_Header | None":
        """The header of ``content``, when that and the snapshot are sound."""
        if len(content) < _HEADER.size:
            return None
        magic, *fields, checksum = _HEADER.unpack_from(content)
        header = cls(*fields)
        snapshot = content[_HEADER.size : header.end]
        sound = magic == _MAGIC and header.checksum(snapshot) == checksum
        return header if sound and len(snapshot) == header.snapshot_bytes else None

    @property
    def end(self) -> int:
        """Where the first batch begins."""
        return _HEADER.size + self.snapshot_bytes

    def checksum(self, snapshot: bytes) -> int:
        return crc32(snapshot, crc32(_HEADER.pack(_MAGIC, *self, 0)))

    def pack(self, snapshot: bytes) -> bytes:
        return _HEADER.pack(_MAGIC, *self, self.checksum(snapshot))


def _sound_header(content: bytes) -> _Header:
    header = _Header.of(content)
    if header is None:  # it was sound when we opened or wrote it
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    return header


def _folded(content: bytes) -> tuple[_Header, Positions, _Snapshot]:
    """What the snapshot says."""
    header = _sound_header(content)
    snapshot = msgspec.msgpack.decode(content[_HEADER.size : header.end], type=_Snapshot)
    rows = zip_longest(snapshot.positions, snapshot.steps, fillvalue=())  # older ones had none
    return header, {(row[0], row[1]): (*row[2:], *before) for row, before in rows if row}, snapshot


def _state(content: bytes) -> JournalState:
    header, positions, snapshot = _folded(content)
    entries: list[Entry] = []
    marked = 0
    for at in _sound_batches(content):
        if _BATCH.unpack_from(content, at)[2]:
            entries += map(Entry._make, _entries(content, at))
        else:
            (marked,) = _MARKED.unpack_from(content, at + _BATCH.size)
    since_us = dict(snapshot.since_us)
    return JournalState(header.folded_to, positions, tuple(entries), since_us, marked, snapshot.key)


def _sound_batches(content: bytes) -> Iterator[int]:
    """Where each batch begins, up to the first that is not sound."""
    header = _sound_header(content)
    at, total, number = header.end, len(content), header.folded_to + 1
    while at + _BATCH.size + _CRC.size <= total:
        size, first, count = _BATCH.unpack_from(content, at)
        end = at + size - _CRC.size
        if end < at + _BATCH.size or end + _CRC.size > total or first < number:
            return
        if crc32(memoryview(content)[at:end]) != _CRC.unpack_from(content, end)[0]:
            return
        yield at
        at += size
        number = first + count


def _entries(content: bytes, at: int) -> Iterator[tuple[int, BrokerId, int, int, bytes]]:
    """The entries of the sound batch at ``at``; fields as of ``Entry``."""
    _, first, count = _BATCH.unpack_from(content, at)
    at += _BATCH.size
    for number in range(first, first + count):
        origin, epoch, seq, k = _ENTRY.unpack_from(content, at)
        keys_at = at + _ENTRY.size
        at = keys_at + KEY_BYTES * k
        yield number, origin, epoch, seq, content[keys_at:at]


def _chains(content: bytes, batches: Sequence[int]) -> set[tuple[BrokerId, bytes]]:
    """The chains that the entries of ``batches`` speak of."""
    entries = chain.from_iterable(_entries(content, at) for at in batches)
    return {(origin, key) for _, origin, _, _, keys in entries for key in keys_in(keys)}


def _fold(
    before: Positions,
    entries: Iterable[tuple[int, BrokerId, int, int, bytes]],
    *,
    only: AbstractSet[tuple[BrokerId, bytes]] | None = None,
) -> Positions:
    """``before`` and the entries (of the chains ``only``); no chain ever goes back."""
    positions = dict(before)
    for _, origin, epoch, seq, keys in entries:
        for key in keys_in(keys):
            at = origin, key
            if only is None or at in only:
                positions[at] = ports.moved(positions.get(at, (0, 0)), epoch, seq)
    return positions
