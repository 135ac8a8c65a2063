"""What our broker's clients published at QoS 1 and 2, on disk until it is too old to be requested.

A diary in loose pages: records are numbered and only appended; pages (segments) are torn out from
the front when they are too old or too many. A destination requests missing records by number, so
the log need not know what each one has.

**Restarts.** The numbering goes on where it ended. When the end may be lost, because it is damaged
or the machine was booted since (unsynchronised records are gone, but may have been sent), it goes
on ``LEAP`` further, so that no number means two things. Only a log without any sound segment begins
a new epoch.

**Damage.** A damaged record, or segment, costs only itself. Its number stays on its known chains,
so that a destination that requests it learns that it is gone.

**Memory.** 8 bytes for a record and 8 for each of its filters; bodies are read from disk.

Source: Kafka's segmented log; RFC 5740 (NORM) for repair from what the sender keeps.
"""

import contextlib
import errno
import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from federator.protocol.custody.ports import Record
from federator.runtime.custody.chains import Chains, HeadsFile
from federator.runtime.custody.segment import Segment, decode, encode, file_name, segment_files
from federator.runtime.process.clocks import wall_clock_us
from federator.runtime.storage import damage, durable
from federator.runtime.storage.durable import write_at

SEGMENT_BYTES = 8 * 1024 * 1024
SEGMENTS_MIN = 8
"""A log has room for so many segments: one drop costs at most this part of it."""

RECORDS_MAX = 4 * 1024 * 1024
KEYS_PER_RECORD_MAX = 2
"""On average. Records with more filters fill the table as if they were more."""

HANDLES_MAX = 4
CONFIG_KEY = "custody"


@dataclass(eq=False, repr=False)
class CustodyLog:
    """The log of one agent, for one thread.

    Holds at most ``bytes_max`` and one append. Segments are dropped by ``expire``, and by
    ``append`` when it begins a new one.

    Args:
        segment_bytes: A segment of this size is followed by another. Less when ``bytes_max``
            has no room for ``SEGMENTS_MIN``.

    Raises:
        ConfigError: The folder cannot be used.
    """

    folder: Path  # created if missing
    bytes_max: int  # on disk
    age_max_s: float  # records older than that may be dropped
    segment_bytes: int = SEGMENT_BYTES
    fsync: durable.FsyncPolicy = "never"  # when to synchronise; see ``Syncing``
    wall_clock_us: Callable[[], int] = wall_clock_us  # for the age of records
    records_max: int = RECORDS_MAX  # held at once; bounds memory
    boot: bytes | None = None  # identifies this boot of the machine; read by default

    def __post_init__(self) -> None:
        folder = self.folder
        self._age_max_us = int(self.age_max_s * 1_000_000)
        self._segment_bytes = max(1, min(self.segment_bytes, self.bytes_max // SEGMENTS_MIN))
        self._syncing = durable.Syncing(self.fsync)
        self._boot = self.boot or durable.this_boot()
        self.epoch = 0  # grows whenever numbering begins anew
        self.bytes = self.records = self._entries = 0  # of all files
        self.dropped_by_age = self.dropped_for_room = 0  # records, since opening
        self._lost: set[int] = set()  # held numbers of damaged records
        self._chains = chains = Chains()
        self.chains, self.head, self.last = chains.heads, chains.head, chains.last
        self.select, self.floor = chains.select, chains.floor
        self._heads = HeadsFile(folder, self._chains.idle)
        self._segments: list[Segment] = []  # the last one is being written
        self._fd = -1
        self._handles: OrderedDict[int, int] = OrderedDict()  # first seq -> descriptor
        durable.private_folder(folder, key=CONFIG_KEY)
        try:
            self._recover()
        except OSError as error:
            raise durable.unusable(folder, error, key=CONFIG_KEY) from error

    # Numbers

    @property
    def next_seq(self) -> int:
        """The number of the next record."""
        return self._segments[-1].end_seq

    @property
    def oldest_seq(self) -> int:
        """The number of the oldest record held; ``next_seq`` when there is none."""
        return next((s.first_seq for s in self._segments if len(s)), self.next_seq)

    def first_since(self, key: bytes, time_us: int) -> int | None:
        """The first held number on the chain made at ``time_us`` or later, to a millisecond.

        When the clock was set back, records made before may be among them; none made after is left
        out.
        """
        return self._chains.first(key, time_us // 1000, self._time_ms)

    # Records

    def append(self, records: Sequence[Record]) -> None:
        """Write ``records``, numbered from ``next_seq`` on, at once.

        Raises:
            OSError: The disk is full or broken; none of them is stored.
        """
        if not records:
            return
        segment = self._segments[-1]
        if segment.size >= self._segment_bytes and len(segment):
            segment = self._begin_next()
        seq = segment.end_seq
        parts: list[bytes] = []
        for record in records:
            assert record.seq == seq, f"record {record.seq}, {seq} wanted"
            seq += 1
            parts.append(encode(record, segment.salt))
        before = segment.size
        write_at(self._fd, b"".join(parts) if len(parts) != 1 else parts[0], before)
        try:
            self._syncing.written(self._fd)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, before)
            raise
        chain, entries = self._chains.add, 0
        for record in records:
            prevs = record.prevs
            entries += len(prevs)
            chain(record.keys, prevs, record.seq)
        segment.add([record.time_us for record in records], list(map(len, parts)), entries)
        self.bytes += segment.size - before
        self.records += len(records)
        self._entries += entries

    def read(self, seq: int) -> Record | None:
        """The record ``seq``; ``None`` when it is not held or cannot be read (any longer)."""
        segment = self._segment_of(seq)
        if segment is None or seq in self._lost:
            return None
        offset, size = segment.place(seq)
        try:
            record = decode(os.pread(self._handle(segment), size, offset), segment.salt)
        except OSError as error:
            if error.errno != errno.EIO:  # such as a lack of descriptors
                return None
            record = None
        if record is None or record.seq != seq:
            self._lost.add(seq)
            damage.tell(segment.path, f"record {seq} cannot be read", lost_bytes=size)
            return None
        return record

    def is_lost(self, seq: int) -> bool:
        """Whether the record ``seq``, which is on a chain and held, can never be read again."""
        return seq in self._lost or self._segment_of(seq) is None

    def recent(self, count: int) -> Iterator[Record]:
        """The newest ``count`` records, the newest first."""
        for segment in reversed(self._segments):
            for seq in range(segment.end_seq - 1, segment.first_seq - 1, -1):
                if count <= 0:
                    return
                count -= 1
                record = self.read(seq)
                if record is not None:
                    yield record

    def expire(self) -> int:
        """Drop whole segments that are too old or too many; return how many records they had.

        Call it every few seconds.
        """
        with contextlib.suppress(OSError):  # the next append reports it
            self._syncing.tick()
        before = self.dropped_by_age + self.dropped_for_room
        now_us = self.wall_clock_us()
        last = self._segments[-1]
        page_us = self._age_max_us // SEGMENTS_MIN
        if len(last) and last.last_us < now_us - page_us:
            with contextlib.suppress(OSError):  # no room for a page: this one stays open
                self._begin_next()  # a quiet log must not keep a page open for ever
        self._drop(now_us - self._age_max_us, room=0)
        return self.dropped_by_age + self.dropped_for_room - before

    def close(self) -> None:
        """Synchronise, unless the policy is never to, and close the files."""
        if self._fd < 0:
            return
        with contextlib.suppress(OSError):
            self._syncing.finish(self._fd)
        self._syncing.close()
        for fd in (self._fd, *self._handles.values()):
            os.close(fd)
        self._handles.clear()
        self._heads.close()
        self._fd = -1

    # Segments

    def _before(self, seq: int) -> Segment:
        """The last segment that begins at ``seq`` or before; else the first one."""
        at = bisect_right(self._segments, seq, key=attrgetter("first_seq")) - 1
        return self._segments[max(0, at)]

    def _segment_of(self, seq: int) -> Segment | None:
        segment = self._before(seq)
        return segment if segment.first_seq <= seq < segment.end_seq else None

    def _time_ms(self, seq: int) -> int:
        segment = self._before(seq)
        if segment.first_seq <= seq < segment.end_seq:
            return segment.time_ms(seq)
        return segment.latest_us // 1000  # it is lost, with the end of a page

    def _handle(self, segment: Segment) -> int:
        if segment is self._segments[-1]:
            return self._fd
        fd = self._handles.get(segment.first_seq)
        if fd is None:
            fd = durable.open_private(segment.path, os.O_RDONLY)
            self._keep_handle(segment, fd)
        else:
            self._handles.move_to_end(segment.first_seq)
        return fd

    def _keep_handle(self, segment: Segment, fd: int) -> None:
        self._handles[segment.first_seq] = fd
        if len(self._handles) > HANDLES_MAX:
            os.close(self._handles.popitem(last=False)[1])

    def _begin_next(self) -> Segment:
        """Close the page and begin another; make room for it."""
        last = self._segments[-1]
        self._syncing.finish(self._fd)
        segment = self._new_segment(last.end_seq, previous=last)
        fd = _create(segment, sync=self._syncing.policy != "never")
        self._keep_handle(last, self._fd)
        self._write_to(segment, fd)
        self._drop(self.wall_clock_us() - self._age_max_us, room=self._segment_bytes)
        return segment

    def _new_segment(self, first_seq: int, *, previous: Segment | None) -> Segment:
        segment = Segment(
            self.folder / file_name(self.epoch, first_seq),
            epoch=self.epoch,
            first_seq=first_seq,
            previous_end=0 if previous is None else previous.end_seq,
            boot=self._boot or bytes(durable.BOOT_BYTES),
        )
        segment.latest_us = 0 if previous is None else previous.latest_us
        return segment

    def _write_to(self, segment: Segment, fd: int) -> None:
        self._fd = fd
        self._segments.append(segment)
        self.bytes += segment.size

    def _drop(self, oldest_us: int, *, room: int) -> None:
        """Drop segments older than ``oldest_us``, and more until ``room`` is left."""
        gone = []
        while len(self._segments) > 1:
            first = self._segments[0]
            aged = first.last_us < oldest_us
            over = (
                self.bytes + room > self.bytes_max
                or self.records > self.records_max
                or self._entries > self.records_max * KEYS_PER_RECORD_MAX
            )
            if not aged and not over:
                break
            del self._segments[0]
            gone.append(first)
            self.bytes -= first.size
            self.records -= len(first)
            self._entries -= first.entries
            if aged:
                self.dropped_by_age += len(first)
            else:
                self.dropped_for_room += len(first)
        if gone:
            oldest = self.oldest_seq
            self._heads.append(self._chains.drop(oldest))
            self._lost = {seq for seq in self._lost if seq >= oldest}
        for segment in gone:
            self._remove(segment)

    def _remove(self, segment: Segment) -> None:
        fd = self._handles.pop(segment.first_seq, None)
        if fd is not None:
            os.close(fd)
        with contextlib.suppress(OSError):  # found again, and older than the epoch's rest
            segment.path.unlink()

    # Opening

    def _recover(self) -> None:
        """Read the segments; go on behind them, or begin a new epoch."""
        files = segment_files(self.folder)
        self.epoch = files[-1][0] if files else 0
        firsts = [(first, path) for epoch, first, path in files if epoch == self.epoch]
        self._chains.idle.update(self._heads.load(self.epoch))
        end_lost = self._read_all([path for _, path in firsts])
        if not self._segments:
            self.epoch = max(self.wall_clock_us() // 1000, self.epoch + 1)
            self._chains.idle.clear()
            self._heads.load(self.epoch)
            segment = self._new_segment(1, previous=None)
            self._write_to(segment, _create(segment, sync=True))
        else:
            last = self._segments[-1]
            end_lost |= damage.is_gone(self.folder)
            if end_lost or self._boot is None or last.boot != self._boot:
                leapt = max(last.end_seq, firsts[-1][0]) + durable.LEAP
                segment = self._new_segment(leapt, previous=last)
                self._write_to(segment, _create(segment, sync=True))
                os.truncate(last.path, last.size)  # only now: the leap is on the disk
            else:
                self._fd = durable.open_private(last.path, os.O_RDWR)
        kept = {segment.path for segment in self._segments}
        for _, _, path in files:
            if path not in kept:
                path.unlink()
        self._chains.oldest = self.oldest_seq

    def _read_all(self, paths: Sequence[Path]) -> bool:
        """Load the sound parts of the segments at ``paths``; return whether their end may be lost.

        A missing segment in front of the first goes unnoticed.
        """
        end_lost = False
        for path in paths:
            content = path.read_bytes()
            segment = Segment.from_header(path, content)
            end_lost = segment is None
            if segment is None:
                damage.tell(path, "neither of its headers is sound", lost_bytes=len(content))
                continue
            previous = self._segments[-1] if self._segments else None
            if previous is not None:
                segment.latest_us = previous.latest_us
                if segment.previous_end > previous.end_seq:  # behind an empty one it may be 0
                    which = f"records {previous.end_seq} to {segment.previous_end - 1}"
                    damage.tell(path, f"{which}, in front of it, are missing")
            lost = segment.scan(content, self._chains.add, self._chains.add_damaged)
            end_lost = segment.size != len(content)  # a cut part may have lost its header
            self._lost.update(lost)
            if lost or end_lost:
                reason = f"{len(lost)} records in it are damaged"
                left = abs(len(content) - segment.size)
                damage.tell(path, reason, lost_bytes=left, places=len(lost) + end_lost)
            self._segments.append(segment)
            self.bytes += segment.size
            self.records += len(segment)
            self._entries += segment.entries
        return end_lost


def _create(segment: Segment, *, sync: bool) -> int:
    """Make the file of ``segment``; a failure leaves no file behind."""
    fd = durable.open_private(segment.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        write_at(fd, segment.header(), 0)
        if sync:
            os.fsync(fd)
            durable.sync_folder(segment.path.parent)
    except OSError:
        os.close(fd)
        with contextlib.suppress(OSError):
            segment.path.unlink()
        raise
    return fd
