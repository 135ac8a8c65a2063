"""A small numbered log on disk: an agent's records, for readers that come later.

Like a ship's log: pages are numbered, written in ink, and filed when full; when the shelf is full
the oldest volume goes, and the log notes that. A reader asks for missing pages by number.

Everything here blocks, and belongs to one thread.

Source: docs/metrics.md, "The spool".
"""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from federator.protocol.telemetry.records import Record, Row, encode
from federator.runtime.storage import damage
from federator.runtime.storage.durable import open_private, private_folder, unusable, write_at
from federator.runtime.telemetry import spool_files as files
from federator.runtime.telemetry.spool_files import Numbering, Segment

BATCH_BYTES_MAX: Final = 196_608
"""A longer flush becomes several batches, so that each fits in one message of an answer."""
CLAIM_NAME: Final = "spool"


Batch = dict[str, list[bytes]]
"""One batch as written: its lines by table, each with its line end."""


@dataclass(frozen=True, slots=True)
class Part:
    """Whole batches: the existing ones from ``first`` to ``last``."""

    first: int
    last: int
    lines: bytes


@dataclass(slots=True)
class _Open(Segment):
    """The segment being written."""

    fd: int
    since_ms: int


@dataclass(kw_only=True, eq=False, repr=False)
class Spool:
    """One agent's spool.

    Raises:
        ConfigError: The folder cannot be used.
    """

    folder: Path  # created if missing
    broker: int
    bytes_max: int  # of all files together
    segment_bytes_max: int
    segment_age_ms: int

    def __post_init__(self) -> None:
        folder, broker = self.folder, self.broker
        private_folder(folder, key="state_dir")
        self.written = self.dropped = 0  # batches, since the start; dropped for room
        self.torn = 0  # segments that a crash left with a torn end
        self.oversized = 0  # records too long to be kept
        self._open: _Open | None = None
        self._damaged: set[Path] = set()  # segments already reported as damaged
        self._at = (0, 0, 0)  # first batch of a segment, next batch there to read, its offset
        try:
            self.torn = files.finish_open(folder, broker)
            self._whole = files.whole_segments(folder, broker)
        except OSError as error:
            raise unusable(folder, error, key="state_dir") from error
        held: dict[str, int] = {}
        for segment in self._whole:
            held[segment.spool] = max(segment.last, held.get(segment.spool, 0))
        end_lost = bool(self.torn) or damage.is_gone(folder)
        self._numbering = Numbering.open(folder / CLAIM_NAME, held, end_lost=end_lost)
        self._bytes = sum(segment.bytes for segment in self._whole)

    @property
    def id(self) -> str:
        return self._numbering.spool

    @property
    def bytes_held(self) -> int:
        """The bytes of all files together. Thread-safe."""
        now = self._open
        return self._bytes + (now.bytes if now is not None else 0)

    def held(self, spool: str) -> tuple[int, int]:
        """The first and the last batch held of ``spool``; ``last < first`` when none is."""
        if own := self._segments(spool):
            return own[0].first, own[-1].last
        first = self._numbering.next_batch if spool == self.id else 1
        return first, first - 1

    def write(self, rows: Sequence[Row], shared: dict[str, Any], *, now_ms: int) -> Sequence[Batch]:
        """Append ``rows`` as one batch, or as several when they are many.

        Raises:
            OSError: They could not be written, and are lost; the spool is as before.
        """
        batches, content = self._encode(rows, shared)
        if not content:
            return []
        first = self._numbering.next_batch
        last = first + len(batches) - 1
        self._numbering.claim(last)
        segment = self._open or self._begin(first, now_ms)
        write_at(segment.fd, content, segment.bytes)
        segment.bytes += len(content)
        segment.last = last
        self._numbering.next_batch = last + 1
        self.written += len(batches)
        return batches

    def tend(self, *, now_ms: int) -> int:
        """Finish a full or old segment; return how many batches were dropped for room.

        Raises:
            OSError: A file cannot be finished; the next call tries again.
        """
        segment = self._open
        if segment is not None:
            old = now_ms - segment.since_ms >= self.segment_age_ms
            if old or segment.bytes >= self.segment_bytes_max:
                self._finish(segment)
        return self._make_room()

    def close(self) -> None:
        """Finish the open segment.

        Raises:
            OSError: It cannot be finished now, and will be at the next start.
        """
        if self._open is not None:
            self._finish(self._open)

    def read(self, spool: str, first: int, last: int, *, bytes_max: int) -> Part | None:
        """Whole batches from ``first`` on, up to ``last``: at least one, if one is held.

        Raises:
            OSError: A file cannot be read.
        """
        for segment in self._segments(spool, first):
            if segment.first > last:
                break
            try:
                part = self._read(segment.path, segment.first, first, last, bytes_max)
            except FileNotFoundError:  # another program may remove segments
                if segment is self._open:
                    raise
                self._whole.remove(segment)
                self._bytes -= segment.bytes
                continue
            if part is not None:
                return part
        return None

    # Within

    def _segments(self, spool: str, first: int = 1) -> list[Segment]:
        """Those with batches of ``spool`` from ``first`` on, ascending."""
        now = [] if self._open is None else [self._open]
        return [
            s for s in (*self._whole, *now) if s.spool == spool and s.last >= max(s.first, first)
        ]

    def _encode(self, rows: Sequence[Row], shared: dict[str, Any]) -> tuple[list[Batch], bytes]:
        shared = {"broker": self.broker, "spool": self.id, **shared}
        number = self._numbering.next_batch
        batches: list[Batch] = [{}]
        content: list[bytes] = []
        size = row = 0

        def line_of(table: type[Record], fields: dict[str, Any]) -> bytes:
            return encode(table(batch=number, row=row, **shared, **fields))

        for table, fields in rows:
            line = line_of(table, fields)
            stored = files.stored(line)
            if len(stored) > BATCH_BYTES_MAX:
                self.oversized += 1
                continue
            if size + len(stored) > BATCH_BYTES_MAX:
                number, row, size = number + 1, 0, 0
                batches.append({})
                line = line_of(table, fields)
                stored = files.stored(line)
            batches[-1].setdefault(str(table.__struct_config__.tag), []).append(line + b"\n")
            content.append(stored)
            size += len(stored)
            row += 1
        return batches, b"".join(content)

    def _begin(self, first: int, now_ms: int) -> _Open:
        path = self.folder / files.open_name(self.broker, self.id, first)
        fd = open_private(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self._open = _Open(path, self.id, first, first - 1, 0, fd, now_ms)
        return self._open

    def _finish(self, segment: _Open) -> None:
        if segment.bytes:
            os.fdatasync(segment.fd)
            name = files.whole_name(self.broker, self.id, segment.first, segment.last)
            path = segment.path.rename(self.folder / name)
            self._whole.append(Segment(path, self.id, segment.first, segment.last, segment.bytes))
            self._bytes += segment.bytes
        else:
            segment.path.unlink(missing_ok=True)
        os.close(segment.fd)
        self._open = None
        if segment.bytes:
            self._numbering.finished(segment.last)

    def _make_room(self) -> int:
        dropped = 0
        open_bytes = self._open.bytes if self._open is not None else 0
        while self._whole and self._bytes + open_bytes > self.bytes_max:
            oldest = self._whole.pop(0)
            self._bytes -= oldest.bytes
            with contextlib.suppress(FileNotFoundError):
                oldest.path.unlink()
                dropped += oldest.last - oldest.first + 1
        self.dropped += dropped
        return dropped

    def _read(self, path: Path, start: int, first: int, last: int, bytes_max: int) -> Part | None:
        """Whole batches of one file, which begins with batch ``start``."""
        with path.open("rb") as file:
            offset = self._offset_of(file, start, first)
            file.seek(offset)
            read_bytes = bytes_max + BATCH_BYTES_MAX
            content = file.read(read_bytes)
        ends: dict[int, int] = {}
        lines: dict[int, list[bytes]] = {}
        damaged = 0
        for end, place, line in files.read_lines(content):
            if place is None:
                damaged += end < read_bytes
            elif place.batch >= first:
                ends[place.batch] = end
                lines.setdefault(place.batch, []).append(line)
        if damaged and path not in self._damaged:
            self._damaged.add(path)
            damage.tell(path, "records in it are damaged", places=damaged)
        if len(content) == read_bytes and len(ends) > 1:
            ends.popitem()  # it may continue behind what was read
        through = cut = 0
        for batch, end in ends.items():
            if batch > last or (cut and end > bytes_max):
                break
            through, cut = batch, end
        if not cut:
            return None
        self._at = (start, through + 1, offset + cut)
        taken = (line for batch in ends if batch <= through for line in lines[batch])
        return Part(first, through, b"".join(taken))

    def _offset_of(self, file: BinaryIO, start: int, first: int) -> int:
        """The offset of the first batch from ``first`` on in a file that begins with ``start``."""
        if first <= start:
            return 0
        if self._at[:2] == (start, first):
            return self._at[2]
        offset = 0
        for line in file:
            for _, place, _ in files.read_lines(line):
                if place and place.batch >= first:
                    return offset
            offset += len(line)
        return offset
