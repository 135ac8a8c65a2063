"""What custody keeps on an agent's disk: the origin's log, the journal, the filters owed.

A process that dies leaves these as they were at its last write; each write happens whole or not at
all. A disk may be full: then nothing can be written, and what is there stays.

Source: docs/protocol.md section 11; ``FrameArchive`` is what the protocol asks of the log.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from federator.protocol.custody import Record
from federator.protocol.frames import keys_in
from federator.protocol.types import BrokerId
from federator.sim.data import number_of, packets_in

RECORDS_MAX = 1_000_000


class DiskFullError(OSError):
    """Nothing can be written."""


class FrameLog:
    """The frames that one agent is the origin of; ``LogInUse`` makes a ``Log`` of it.

    Args:
        epoch: Of the numbering.
        records_max: Frames kept; the oldest are dropped.
    """

    def __init__(self, epoch: int, *, records_max: int = RECORDS_MAX) -> None:
        self.epoch = epoch
        self.next_seq = 1
        self.numbers: set[int] = set()
        self._records_max = records_max
        self._records: dict[int, Record] = {}
        self._chains: dict[bytes, list[int]] = {}
        self._dropped: dict[bytes, int] = {}

    def append(self, records: Sequence[Record]) -> list[int]:
        """Keep ``records``; the publications that had to be dropped for them."""
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

    def recent(self, count: int) -> Iterator[Record]:
        """The newest ``count``, the newest first."""
        for seq in sorted(self._records, reverse=True)[:count]:
            yield self._records[seq]

    def chains(self) -> Iterator[tuple[bytes, int]]:
        """The chains of which something is held, and their heads."""
        return ((key, seqs[-1]) for key, seqs in self._chains.items() if seqs)

    def read(self, seq: int) -> Record | None:
        """The frame ``seq``."""
        return self._records.get(seq)

    def head(self, key: bytes) -> int:
        """The last frame on a chain; 0: none."""
        held = self._chains.get(key)
        return held[-1] if held else self._dropped.get(key, 0)

    def select(self, key: bytes, after: int, *, limit: int) -> list[int]:
        """The first ``limit`` frames of a chain after ``after``."""
        held = self._chains.get(key, [])
        start = bisect_right(held, after)
        return held[start : start + limit]

    def floor(self, key: bytes, after: int) -> int:
        """The last frame of a chain that is gone, when it is greater than ``after``."""
        return max(self._dropped.get(key, 0), after)

    def first_since(self, key: bytes, time_us: int) -> int | None:
        """The first frame of a chain that was made at ``time_us`` or later, to a millisecond."""
        found = (s for s in self._chains.get(key, []) if self._time_ms(s) >= time_us // 1_000)
        return next(found, None)

    def _time_ms(self, seq: int) -> int:
        return self._records[seq].time_us // 1_000


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A delivery, noted before it was handed to the broker."""

    number: int
    origin: BrokerId
    epoch: int
    seq: int
    keys: bytes


class Journal:
    """Deliveries in order, and which chains our clients want.

    Args:
        id: Told by markers, so that those of another journal are not taken for ours.
    """

    def __init__(self, id: int) -> None:
        self.id = id
        self.entries: list[JournalEntry] = []
        self.since_us: dict[bytes, int] = {}

    @property
    def last(self) -> int:
        """The number of the last entry; 0 without one."""
        return len(self.entries)

    def append(self, deliveries: Sequence[tuple[BrokerId, int, int, bytes]]) -> None:
        """Note what is delivered next."""
        for delivery in deliveries:
            self.entries.append(JournalEntry(self.last + 1, *delivery))

    def positions(self, marker: int | None) -> dict[tuple[BrokerId, bytes], tuple[int, int]]:
        """Where each chain is when entries up to ``marker`` were delivered; ``None``: all were."""
        found: dict[tuple[BrokerId, bytes], tuple[int, int]] = {}
        for entry in self.entries[:marker]:
            for key in keys_in(entry.keys):
                chain = entry.origin, key
                found[chain] = max(found.get(chain, (0, 0)), (entry.epoch, entry.seq))
        return found

    def resume(self, marker: int | None) -> dict[tuple[BrokerId, bytes], tuple[int, int]]:
        """Begin again behind ``marker``: entries after it are struck out, their numbers are not."""
        positions = self.positions(marker)
        if marker is not None:
            self.entries[marker:] = [replace(each, keys=b"") for each in self.entries[marker:]]
        return positions

    def keep_only(self, chains: Collection[tuple[BrokerId, bytes]]) -> None:
        """Forget where other chains were."""
        self.entries = [
            replace(
                each, keys=b"".join(k for k in keys_in(each.keys) if (each.origin, k) in chains)
            )
            for each in self.entries
        ]

    def marker(self) -> bytes:
        """What to leave at our broker behind the last entry."""
        return b"%d|%d" % (self.id, self.last)

    def read_marker(self, payload: bytes) -> int | None:
        """The number in a marker of this journal."""
        id, _, number = payload.partition(b"|")
        return int(number) if id == b"%d" % self.id else None


@dataclass(slots=True)
class CustodyDisk:
    """All that custody keeps.

    Attributes:
        owed: Filter -> until when it is owed, by our wall clock; 0: it is wanted now.
        full_for: Causes why nothing can be written.
        is_new: Nothing was ever written: what an earlier session subscribes is not known.
        records_max: Frames the log has room for.
    """

    records_max: int = RECORDS_MAX
    log: FrameLog | None = None
    journal: Journal = field(default_factory=lambda: Journal(0))
    owed: dict[str, int] = field(default_factory=dict)
    full_for: int = 0
    is_new: bool = True

    def open(self, epoch: int) -> FrameLog:
        """The log, begun in ``epoch`` when there is none."""
        if self.log is None:
            self.log = FrameLog(epoch, records_max=self.records_max)
        return self.log

    def check(self) -> None:
        """Raises ``DiskFullError`` when nothing can be written."""
        if self.full_for:
            raise DiskFullError("no space left on the simulated disk")

    def lose(self) -> None:
        """The disk is replaced by an empty one."""
        self.log, self.journal = None, Journal(self.journal.id + 1)
        self.owed = {}
        self.is_new = True
