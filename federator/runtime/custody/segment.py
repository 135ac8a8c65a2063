"""One file of the custody log: a header, then records back to back.

A segment is a page of a diary: numbered, written top down, torn out whole when it is too old. The
header says which record comes first and where the page before ended, so that a missing page is
noticed; each record ends with a checksum, so that half a record is. A damaged record is skipped:
the next is found by its number and checksum.

Layout, little-endian. Header, twice: magic, epoch, first seq, the seq before which the previous
segment ended, the boot in which it was begun, CRC-32. Record: size in bytes, seq, time,
publications, number of keys; keys of 8 bytes, prevs of 8, body, CRC-32. The record's CRC continues
from the header's: no client knows the boot, so none can hide a fake record in a body, to be found
when the true one is damaged. Older segments (``fedlog2``) have one header, and checksums from 0.
"""

import re
import struct
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

from federator.protocol.custody.ports import Record
from federator.protocol.forwarding.frames import KEY_BYTES
from federator.runtime.storage import damage
from federator.runtime.storage.durable import BOOT_BYTES

SUFFIX = ".log"

_MAGIC, _FORMER_MAGIC = b"fedlog3\n", b"fedlog2\n"
_HEADER = struct.Struct(f"<8sQQQ{BOOT_BYTES}s")
_CRC = struct.Struct("<I")
_FORMER_HEADER_BYTES = _HEADER.size + _CRC.size
HEADER_BYTES = 2 * _FORMER_HEADER_BYTES

_LABEL = struct.Struct("<IQQII")  # size, seq, time_us, publications, keys
_COMMON = struct.Struct("<IQQII8sQ")  # the label, one key, its prev
_COMMON_PACK, _CRC_PACK = _COMMON.pack, _CRC.pack
LABEL_BYTES = _LABEL.size
_RECORD_BYTES_MIN = LABEL_BYTES + _CRC.size

_NAME = re.compile(r"([0-9]{1,15})-([0-9]{20})\.log")
_SEQ_MAX = 2**63
_TIME_MAX = 2**32 - 1


def encode(record: Record, salt: int = 0) -> bytes:
    """The stored form of ``record``; its checksum goes on from ``salt``."""
    keys, prevs, body = record.keys, record.prevs, record.body
    k = len(prevs)
    assert len(keys) == KEY_BYTES * k, f"{len(keys)} bytes of keys for {k} prevs"
    size = _RECORD_BYTES_MIN + 16 * k + len(body)
    if k == 1:
        head = _COMMON_PACK(
            size, record.seq, record.time_us, record.publications, 1, keys, prevs[0]
        )
    else:
        label = _LABEL.pack(size, record.seq, record.time_us, record.publications, k)
        head = b"".join((label, keys, struct.pack(f"<{k}Q", *prevs)))
    return b"".join((head, body, _CRC_PACK(crc32(body, crc32(head, salt)))))


def decode(stored: bytes, salt: int = 0) -> Record | None:
    """The record in ``stored``, or ``None`` when that is not a whole record."""
    end = len(stored) - _CRC.size
    if end < LABEL_BYTES:
        return None
    if crc32(memoryview(stored)[:end], salt) != _CRC.unpack_from(stored, end)[0]:
        return None
    size, seq, time_us, publications, k = _LABEL.unpack_from(stored)
    prevs_at = LABEL_BYTES + KEY_BYTES * k
    body_at = prevs_at + 8 * k
    if size != len(stored) or body_at > end:
        return None
    return Record(
        seq,
        time_us,
        publications,
        stored[LABEL_BYTES:prevs_at],
        struct.unpack_from(f"<{k}Q", stored, prevs_at),
        stored[body_at:end],
    )


def file_name(epoch: int, first_seq: int) -> str:
    """The file name of a segment: sorts by first number."""
    return f"{epoch}-{first_seq:020}{SUFFIX}"


def segment_files(folder: Path) -> list[tuple[int, int, Path]]:
    """(epoch, first seq, path) of every segment in ``folder``, ascending."""
    found = []
    for path in folder.iterdir():
        match = _NAME.fullmatch(path.name)
        if match and int(match[2]) < _SEQ_MAX:
            found.append((int(match[1]), int(match[2]), path))
    return sorted(found)


@dataclass(slots=True, eq=False, repr=False)
class Segment:
    """The part of a segment in memory: 8 bytes a record."""

    path: Path
    epoch: int
    first_seq: int  # number of its first record
    previous_end: int  # where the segment before it ended: one more than its last number
    boot: bytes
    header_bytes: int = HEADER_BYTES
    salt: int = field(default=0, init=False)  # the start value of the records' checksums
    size: int = field(init=False)  # of the file, up to the end of its last sound record
    entries: int = field(default=0, init=False)  # keys of all its records
    last_us: int = field(default=0, init=False)  # time of its last record; 0 without one
    # Latest time of a record, here or in earlier segments.
    latest_us: int = field(default=0, init=False)
    _base_ms: int = field(default=0, init=False)
    _offsets: "array[int]" = field(default_factory=lambda: array("I"), init=False)
    _times: "array[int]" = field(default_factory=lambda: array("I"), init=False)

    def __post_init__(self) -> None:
        self.size = self.header_bytes
        if self.header_bytes == HEADER_BYTES:
            self.salt = crc32(self._fields())

    def __len__(self) -> int:
        """How many records it holds, including damaged ones."""
        return len(self._offsets)

    @property
    def end_seq(self) -> int:
        """One more than the number of its last record."""
        return self.first_seq + len(self._offsets)

    def header(self) -> bytes:
        """The beginning of its file."""
        return damage.twice(self._fields())

    def _fields(self) -> bytes:
        return _HEADER.pack(_MAGIC, self.epoch, self.first_seq, self.previous_end, self.boot)

    @classmethod
    def from_header(cls, path: Path, content: bytes) -> "Segment | None":
        """The segment that begins with ``content``, still without records.

        ``None`` when the header is damaged, or belongs to another file.
        """
        fields = damage.either(content, _HEADER.size)
        if fields is None:
            return None
        magic, epoch, first_seq, previous_end, boot = _HEADER.unpack(fields)
        if magic not in {_MAGIC, _FORMER_MAGIC} or path.name != file_name(epoch, first_seq):
            return None
        size = HEADER_BYTES if magic == _MAGIC else _FORMER_HEADER_BYTES
        if size == HEADER_BYTES and not damage.are_same(content, _HEADER.size):
            damage.tell(path, "one of its headers is not sound")
        return cls(path, epoch, first_seq, previous_end, boot, header_bytes=size)

    def add(self, times_us: Sequence[int], sizes: Sequence[int], entries: int) -> None:
        """Add the next records, of ``sizes`` bytes on disk and ``entries`` keys in all."""
        if not self._offsets:
            self._base_ms = max(self.latest_us, times_us[0]) // 1000
        latest_us, base_ms, offset = self.latest_us, self._base_ms, self.size
        add_offset, add_time = self._offsets.append, self._times.append
        time_ms = min(latest_us // 1000 - base_ms, _TIME_MAX)
        for time_us, size in zip(times_us, sizes, strict=True):
            if time_us > latest_us:
                latest_us = time_us
                time_ms = min(latest_us // 1000 - base_ms, _TIME_MAX)
            add_offset(offset)
            add_time(time_ms)
            offset += size
        self.last_us = times_us[-1]
        self.latest_us, self.size = latest_us, offset
        self.entries += entries

    def place(self, seq: int) -> tuple[int, int]:
        """(offset, bytes) of the record ``seq``, one of ours."""
        index = seq - self.first_seq
        offset = self._offsets[index]
        after = index + 1
        end = self._offsets[after] if after < len(self._offsets) else self.size
        return offset, end - offset

    def time_ms(self, seq: int) -> int:
        """The latest time of a record up to ``seq``, one of ours: it never falls.

        So after the clock was set back, later records look no older than those before.
        """
        return self._base_ms + self._times[seq - self.first_seq]

    def scan(
        self,
        content: bytes,
        found: Callable[[bytes, tuple[int, ...], int], None],
        damaged: Callable[[bytes, tuple[int, ...], int], None],
    ) -> list[int]:
        """Add the records in the whole file's ``content``; return the numbers of damaged ones.

        ``found`` is called with the keys, prevs and number of each, in order; ``damaged`` with what
        a damaged one seems to have had.
        """
        view, salt = memoryview(content), self.salt
        at, total, seq, entries = self.size, len(content), self.end_seq, 0
        times_us: list[int] = []
        sizes: list[int] = []
        lost: list[int] = []
        while at + _RECORD_BYTES_MIN <= total:
            size, seq_there, time_us, _, k = _LABEL.unpack_from(content, at)
            end = at + size - _CRC.size
            prevs_at = at + LABEL_BYTES + KEY_BYTES * k
            fits = end + _CRC.size <= total and prevs_at + 8 * k <= end and seq_there == seq
            is_sound = fits and crc32(view[at:end], salt) == _CRC.unpack_from(content, end)[0]
            if fits:
                keys = content[at + LABEL_BYTES : prevs_at]
                links = keys, struct.unpack_from(f"<{k}Q", content, prevs_at), seq
            if is_sound:
                found(*links)
                times_us.append(time_us)
                sizes.append(size)
                entries += k
                at += size
                seq += 1
                continue
            after, seq_after = self._next_sound(content, at, seq), seq + 1
            if after == total and not (fits and at + size == total):
                break
            if fits and after == at + size:
                damaged(*links)
            if after < total:
                _, seq_after, time_us, _, _ = _LABEL.unpack_from(content, after)
            lost += range(seq, seq_after)
            times_us += [time_us] * (seq_after - seq)
            sizes += [after - at, *[0] * (seq_after - seq - 1)]
            at, seq = after, seq_after
        if sizes:
            self.add(times_us, sizes, entries)
        return lost

    def _next_sound(self, content: bytes, at: int, seq: int) -> int:
        """Where the first sound record begins behind the damaged ``seq`` at ``at``."""
        view, salt, total = memoryview(content), self.salt, len(content)
        unpack, crc_of = _LABEL.unpack_from, _CRC.unpack_from

        def is_sound(there: int) -> bool:
            size, seq_there, _, _, k = unpack(content, there)
            end = there + size - _CRC.size
            if not (seq < seq_there <= seq + (there - at) // _RECORD_BYTES_MIN and end < total):
                return False
            if there + LABEL_BYTES + 16 * k > end or end + _CRC.size > total:
                return False
            (checksum,) = crc_of(content, end)
            return crc32(view[there:end], salt) == int(checksum)

        guess = at + unpack(content, at)[0]
        least = _RECORD_BYTES_MIN
        return damage.next_sound(at, total, guess=guess, least=least, is_sound=is_sound)
