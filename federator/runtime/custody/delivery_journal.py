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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from federator.runtime.storage import damage, durable
from federator.runtime.storage.durable import write_at

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

_Lost = Callable[[int, int], None]

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
    """The contents of a journal."""

    folded_to: int  # entries up to this number are in ``positions``
    positions: Positions  # where each chain was after them
    entries: tuple[Entry, ...]  # the later entries, in order
    since_us: dict[bytes, int]  # filter key -> wall clock in us when our clients subscribed
    marked: int  # the newest marker that our broker is known to have had; 0: unknown


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
        self._path = folder / FILE_NAME
        boot = self.boot or durable.this_boot()
        self._boot = boot or bytes(durable.BOOT_BYTES)
        self.journal_id = 0  # 64 random bits, drawn when the file is made
        self.last = 0  # number of the last entry
        self._lost = 0  # damaged bytes not reported yet
        self._mark_lost = False  # the number of a marker was damaged
        self._fd = -1
        self._tail_at = self._size = 0
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
        return foldable or self._size - self._tail_at >= self.bytes_max

    def append(self, deliveries: Sequence[ports.Delivered]) -> int:
        """Write down the next deliveries at once; return the number of the last entry.

        A position that arises without a delivery may be entered as if it were one.
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
        """Write down that our broker has the marker ``number``: older ones no longer count.

        Raises:
            OSError: The disk is full or broken; nothing is noted.
        """
        self._write_batch(_MARKED.pack(number), 0)
        if number == self.last:
            self._marked_at = self._size

    def _write_batch(self, entries: bytes, count: int) -> None:
        content = damage.piece(_BATCH.pack(self.last + 1, count) + entries)
        write_at(self._fd, content, self._size)
        self._size += len(content)
        self.last += count

    def load(self) -> JournalState:
        """The whole contents of the file."""
        content = self._read()
        header, positions, since_us = _folded(content, self._on_lost)
        entries: list[Entry] = []
        marked = 0
        for at, _ in _batches(content, self._on_lost):
            if _BATCH.unpack_from(content, at)[1]:
                entries += map(Entry._make, _entries(content, at))
            else:
                (marked,) = _MARKED.unpack_from(content, at + _BATCH.size)
        self._log_lost()
        return JournalState(header.folded_to, positions, tuple(entries), since_us, marked)

    def since_us(self) -> dict[bytes, int]:
        """By filter key, since when our clients want it, as of the last snapshot."""
        return dict(self.load().since_us)

    def positions(self, marker: int | None) -> Positions:
        """The position of each chain after the entries up to ``marker``.

        The newest marker that our broker is known to have counts instead of an older or missing
        one. Without either, all entries were delivered.
        """
        state = self.load()
        all_were = marker is None and not state.marked and not self._mark_lost
        to = None if all_were else max(marker or 0, state.marked)
        return _fold(state.positions, (e for e in state.entries if to is None or e.number <= to))

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
        content = self._read()
        header, current, saved = _folded(content, self._on_lost)
        batches = list(_batches(content, self._on_lost))
        self._log_lost()
        cut, folded, stays = self._tail_at, header.folded_to, 0
        for at, end in batches:
            first, count = _BATCH.unpack_from(content, at)
            fits = self._size - (at - _BEFORE) <= self.bytes_max // 2
            if first + count - 1 > folded_to and fits:
                break
            cut, folded, stays = end + _BEHIND, first + count - 1, stays + 1
        gone = chain.from_iterable(_entries(content, at) for at, _ in batches[:stays])
        if positions is None:
            before: ports.Positions = _fold(current, gone)
        else:
            later = _chains(content, batches[stays:])
            current = _fold({at: current[at] for at in later if at in current}, gone, only=later)
            before = {at: positions[at] for at in positions if at not in later}
            before |= {at: current[at] for at in current if at in positions}
        since = saved if since_us is None else since_us
        self._write(_encode_snapshot(before, since), content[cut:], folded_to=folded)

    def marker(self, number: int | None = None) -> bytes:
        """The marker to publish behind the entry ``number``; by default the last one."""
        text = b"%016x|%d" % (self.journal_id, self.last if number is None else number)
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

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    # Within

    def _read(self) -> bytes:
        return os.pread(self._fd, self._size, 0)

    def _write(self, snapshot: bytes, batches: bytes, *, folded_to: int) -> None:
        """Put a complete file in place."""
        fields = (self.journal_id, self._boot, folded_to, self.last + 1, len(snapshot), self._key)
        parts = [_Header(*fields).pack(), snapshot, batches]
        fd = durable.replace_file(self._path, parts, sync=True)
        self.close()
        self._fd = fd
        self._tail_at = _HEADER_BYTES + len(snapshot)
        self._size = self._tail_at + len(batches)
        self._marked_at = 0

    def _recover(self, *, known_boot: bool) -> None:
        is_new = not self._path.exists()
        content = b"" if is_new else self._path.read_bytes()
        former = _renewed(content)
        content = former or content
        header = _Header.of(content)
        if header is None:
            if not is_new:
                reason = "neither of its headers is sound"
                damage.tell(self._path, reason, lost_bytes=len(content))
            self.journal_id = int.from_bytes(os.urandom(8))
            self._key = os.urandom(KEY_DRAWN_BYTES)
            self._write(b"", b"", folded_to=0)
            return
        self.journal_id = header.journal_id
        self._takes_unproven = header.key == _NO_KEY
        self._key = os.urandom(KEY_DRAWN_BYTES) if self._takes_unproven else header.key
        _, positions, since_us = _folded(content, self._on_lost)
        sound = list(_batches(content, self._on_lost))
        self.last = header.next_number - 1
        for at, _ in sound:
            first, count = _BATCH.unpack_from(content, at)
            self.last = max(self.last, first + count - 1)
        if not damage.are_same(content, _HEADER.size):
            self._lost += _HEADER.size
        leaps = bool(self._lost) or damage.is_gone(self.folder)
        leaps = leaps or not known_boot or header.boot != self._boot
        self._log_lost()
        if leaps or former:
            self.last += durable.LEAP if leaps else 0
            batches = b"".join(content[at - _BEFORE : end + _BEHIND] for at, end in sound)
            snapshot = _encode_snapshot(positions, since_us)
            self._write(snapshot, batches, folded_to=header.folded_to)
        else:
            self._tail_at, self._size = header.end, len(content)
            self._fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)

    def _on_lost(self, start: int, end: int) -> None:
        self._lost += end - start
        self._mark_lost |= end - start == _MARK_BYTES

    def _log_lost(self) -> None:
        if self._lost:
            damage.tell(self._path, "some of what it says is damaged", lost_bytes=self._lost)
            self._lost = 0


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


def _sound_header(content: bytes) -> _Header:
    header = _Header.of(content)
    if header is None:  # it was sound when we opened or wrote it
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    return header


def _folded(content: bytes, lost: _Lost) -> tuple[_Header, Positions, dict[bytes, int]]:
    """The snapshot: where each chain is, since when a key is wanted."""
    header = _sound_header(content)
    positions: Positions = {}
    since_us: dict[bytes, int] = {}
    for at, end in damage.read_pieces(content, _HEADER_BYTES, header.end, lost):
        if end - at == _SINCE.size:
            key, at_us = _SINCE.unpack_from(content, at)
            since_us[key] = at_us
        else:
            steps = (end - at - _POSITION.size) // _STEP.size
            origin, key, *position = _POSITIONS[steps].unpack_from(content, at)
            positions[origin, key] = tuple(position)
    return header, positions, since_us


def _batches(content: bytes, lost: _Lost) -> Iterator[tuple[int, int]]:
    """Begin and end of the content of each sound batch that is not folded yet."""
    header = _sound_header(content)
    number = header.folded_to + 1
    for at, end in damage.read_pieces(content, header.end, len(content), lost):
        first, count = _BATCH.unpack_from(content, at)
        if first >= number:
            yield at, end
            number = first + count


def _entries(content: bytes, at: int) -> Iterator[tuple[int, BrokerId, int, int, bytes]]:
    """The entries of the sound batch at ``at``; fields as in ``Entry``."""
    first, count = _BATCH.unpack_from(content, at)
    at += _BATCH.size
    for number in range(first, first + count):
        origin, epoch, seq, k = _ENTRY.unpack_from(content, at)
        keys_at = at + _ENTRY.size
        at = keys_at + KEY_BYTES * k
        yield number, origin, epoch, seq, content[keys_at:at]


def _chains(content: bytes, batches: Sequence[tuple[int, int]]) -> set[tuple[BrokerId, bytes]]:
    """The chains in the entries of ``batches``."""
    entries = chain.from_iterable(_entries(content, at) for at, _ in batches)
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
