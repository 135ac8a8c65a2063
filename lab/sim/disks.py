"""What custody keeps on an agent's disk: the origin's log, the journal, the filters owed.

A process that dies leaves these as they were at its last write; each write happens whole or not at
all. A disk may be full: then nothing can be written, and what is there stays.

Source: docs/protocol.md section 11; ``Disk`` of ``protocol.custody.ports``.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from federator.protocol.custody.ports import Delivered, KnownStamp, Positions, Record, moved
from federator.protocol.forwarding.frames import keys_in
from federator.protocol.forwarding.publications import packets_in
from federator.protocol.types import BrokerId
from lab.sim.data import number_of
from lab.sim.plan import RECORDS_MAX

KEEP_S = 1_800


class FrameLog:
    """The newest ``records_max`` frames that one agent is the origin of, numbered in ``epoch``."""

    def __init__(self, epoch: int, *, records_max: int = RECORDS_MAX) -> None:
        self.epoch = epoch
        self.next_seq = 1
        self.numbers: set[int] = set()
        self._records_max = records_max
        self._records: dict[int, Record] = {}
        self._chains: dict[bytes, list[int]] = {}
        self._dropped: dict[bytes, int] = {}

    def append(self, records: Sequence[Record]) -> list[int]:
        for record in records:
            assert record.seq == self.next_seq, f"record {record.seq}, {self.next_seq} wanted"
            self.next_seq += 1
            self._records[record.seq] = record
            self.numbers.update(map(number_of, packets_in(record.body)))
            for key in keys_in(record.keys):
                self._chains.setdefault(key, []).append(record.seq)
        dropped: list[int] = []
        while len(self._records) > self._records_max:
            oldest = self._records.pop(next(iter(self._records)))
            dropped += map(number_of, packets_in(oldest.body))
            for key in keys_in(oldest.keys):
                self._chains[key].remove(oldest.seq)
                self._dropped[key] = oldest.seq
        return dropped

    def expire(self) -> int:
        return 0

    def recent(self, count: int) -> Iterator[Record]:
        for seq in sorted(self._records, reverse=True)[:count]:
            yield self._records[seq]

    def chains(self) -> Iterator[tuple[bytes, int]]:
        """The chains of which something is held, and their heads."""
        return ((key, seqs[-1]) for key, seqs in self._chains.items() if seqs)

    def read(self, seq: int) -> Record | None:
        return self._records.get(seq)

    def is_lost(self, seq: int) -> bool:
        return False

    def head(self, key: bytes) -> int:
        """The last frame on a chain; 0: none."""
        return self.last(key, self.next_seq)

    def select(self, key: bytes, after: int, *, limit: int) -> list[int]:
        """The first ``limit`` frames of a chain after ``after``."""
        held = self._chains.get(key, [])
        start = bisect_right(held, after)
        return held[start : start + limit]

    def last(self, key: bytes, upto: int) -> int:
        held = self._chains.get(key, [])
        count = bisect_right(held, upto)
        return held[count - 1] if count else self._dropped.get(key, 0)

    def floor(self, key: bytes, after: int) -> int:
        """The last frame of a chain that is gone, when it is greater than ``after``."""
        return max(self._dropped.get(key, 0), after)

    def first_since(self, key: bytes, time_us: int) -> int | None:
        """The first frame of a chain that was made at ``time_us`` or later, to a millisecond."""
        records = map(self._records.__getitem__, self._chains.get(key, []))
        since = (r.seq for r in records if r.time_us // 1_000 >= time_us // 1_000)
        return next(since, None)


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A delivery, noted before it was handed to the broker."""

    number: int
    origin: BrokerId
    epoch: int
    seq: int
    keys: bytes


class Journal:
    """Deliveries in order, and which chains our clients want."""

    is_due = False

    def __init__(self, id: int) -> None:
        self.id = id  # told by markers, so that those of another journal are not taken for ours
        self.entries: list[JournalEntry] = []
        self.marked = 0
        self._folded: dict[tuple[BrokerId, bytes], tuple[int, ...]] = {}
        self.saved_since_us: dict[bytes, int] = {}

    def since_us(self) -> Mapping[bytes, int]:
        """Since when our clients want what, as of the last snapshot."""
        return self.saved_since_us

    @property
    def last(self) -> int:
        return len(self.entries)

    def append(self, deliveries: Sequence[tuple[BrokerId, int, int, bytes]]) -> None:
        for delivery in deliveries:
            self.entries.append(JournalEntry(self.last + 1, *delivery))

    def positions(self, marker: int | None) -> Positions:
        """Where each chain is when entries up to ``marker`` were delivered; see the true one."""
        marker = self._newer(marker)
        found = dict(self._folded)
        for entry in self.entries[:marker]:
            for key in keys_in(entry.keys):
                chain = entry.origin, key
                found[chain] = moved(found.get(chain, (0, 0)), entry.epoch, entry.seq)
        return found

    def resume(self, marker: int | None) -> Positions:
        """Begin again behind ``marker``: entries after it are struck out, their numbers are not."""
        positions, marker = self.positions(marker), self._newer(marker)
        if marker is not None:
            self.entries[marker:] = [replace(each, keys=b"") for each in self.entries[marker:]]
        return positions

    def _newer(self, marker: int | None) -> int | None:
        return max(marker or 0, self.marked) if marker is not None or self.marked else None

    def fold(self, positions: Positions, *, folded_to: int) -> None:
        """Replace entries up to ``folded_to`` by ``positions``, as ``DeliveryJournal.snapshot``."""
        known, later = self.positions(folded_to), self.entries[folded_to:]
        begun = {(entry.origin, key) for entry in later for key in keys_in(entry.keys)}
        self._folded = {
            at: known.get(at, (0, 0)) if at in begun else position
            for at, position in positions.items()
        }
        self.entries[:folded_to] = [replace(entry, keys=b"") for entry in self.entries[:folded_to]]

    def marker(self) -> bytes:
        return b"%d|%d" % (self.id, self.last)

    def read_marker(self, payload: bytes) -> int | None:
        """The number in a marker of this journal."""
        id, _, number = payload.partition(b"|")
        return int(number) if id == b"%d" % self.id else None


@dataclass(slots=True)
class CustodyDisk:
    """All that custody keeps."""

    records_max: int = RECORDS_MAX  # frames the log has room for
    log: FrameLog | None = None
    journal: Journal = field(default_factory=lambda: Journal(0))
    # Filter -> until when it is owed, by our wall clock; 0: it is wanted now.
    owed: dict[str, int] = field(default_factory=dict)
    stamps: list[KnownStamp] = field(default_factory=list)
    full_for: int = 0  # causes why nothing can be written
    is_new: bool = True  # nothing was ever written: what an earlier session subscribes is not known

    def open(self, epoch: int) -> FrameLog:
        """The log, begun in ``epoch`` when there is none."""
        if self.log is None:
            self.log = FrameLog(epoch, records_max=self.records_max)
        return self.log

    def lose(self) -> None:
        """The disk is replaced by an empty one."""
        self.log, self.journal = None, Journal(self.journal.id + 1)
        self.owed = {}
        self.stamps = []
        self.is_new = True


class Writer:
    """The process that writes; this one writes nothing worth following."""

    noted = True
    """The journal has what is delivered next."""

    def step(self) -> None:
        """One more thing is done that a crash may come after."""

    def too_old(self, numbers: list[int]) -> None:
        """The log had no room any more for these publications."""

    def disk_full(self, event: str) -> None:
        """A write was refused: what the daemon's log would say."""


class DiskInUse:
    """A disk in the hands of one process; satisfies ``Disk`` of ``protocol.custody.ports``.

    Each write fails whole while the disk is full, and the process may be killed right after it.
    A log begins in ``epoch`` when earlier lives left none.
    """

    keep_s = KEEP_S

    def __init__(self, disk: CustodyDisk, epoch: int, writer: Writer) -> None:
        self.log = disk.open(epoch)
        self.journal = disk.journal
        self._disk = disk
        self._writer = writer

    def write_log(self, records: Sequence[Record]) -> bool:
        if self._is_full("custody.log_failed"):
            return False
        self._writer.too_old(self.log.append(records))
        self._writer.step()
        return True

    def write_journal(self, deliveries: Sequence[Delivered]) -> bool:
        self._writer.noted = not self._is_full("custody.journal_failed")
        if self._writer.noted:
            self.journal.append(deliveries)
            self._writer.step()
        return self._writer.noted

    def note_marked(self, number: int) -> None:
        self.journal.marked = number

    def resume_journal(self, marker: int | None) -> Positions | None:
        return None if self._is_full("custody.journal_failed") else self.journal.resume(marker)

    def fold_journal(
        self, positions: Positions | None, since_us: Mapping[bytes, int], *, folded_to: int
    ) -> bool:
        """Replace entries up to ``folded_to`` by positions; ``None``: those of the journal."""
        if self._is_full("custody.journal_failed"):
            return False
        self.journal.saved_since_us = dict(since_us)
        if positions is not None:
            self.journal.fold(positions, folded_to=folded_to)
        return True

    def load_owed(self) -> Mapping[str, int]:
        """Until when each filter is owed; 0: it is wanted now."""
        return dict(self._disk.owed)

    def write_owed(self, filter_: str, until_us: int | None) -> None:
        if self._is_full("custody.owed_failed"):
            return
        self._disk.is_new = False
        if until_us is None:
            self._disk.owed.pop(filter_, None)
        else:
            self._disk.owed[filter_] = until_us

    def write_stamps(self, stamps: Sequence[KnownStamp]) -> bool:
        if stamps and self._is_full("custody.stamps_failed"):
            return False
        self._disk.stamps += stamps
        return True

    def _is_full(self, event: str) -> bool:
        if self._disk.full_for:
            self._writer.disk_full(event)
        return self._disk.full_for > 0
