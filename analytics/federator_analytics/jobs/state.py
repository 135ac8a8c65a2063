"""What the stream has folded so far: partial aggregates on disk, by spans of micro-batches.

A part is written under a hidden name and renamed into place whole, so a kill leaves it there or
not there. Parts of like length are merged eight at a time, as in a log-structured merge tree:
there are never more than seven of a level, and a record is merged once per level. A merged part
covers what it was made of, which may then go. One machine's file system (or a shared one) is
wanted: object storage renames nothing.

The tasks of a micro-batch write what it gave, a file per partial: by Spark's own writer all rows
would go to Java, be parted there and written with much ado per file, which takes longer than to
read and fold them. A task that is run again, or twice at once, writes the same rows under the same
names, each file renamed into place whole. All else the driver does, in memory: the rows are few.
Two partials are about as large as the records, and hardly any two of their rows have a key in
common. Theirs are not merged but put together, up to ``FILE_ROWS_MAX`` in a file, in the order of
windows: then those of a window are read without the others.
"""

import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext

from federator_analytics.errors import UsageError
from federator_analytics.jobs.staging import folder_of
from federator_analytics.sources.duplicates import COUNTED_MARKS
from federator_analytics.transforms import counted
from federator_analytics.transforms.folding import HELD, HELD_RECORDS, Held, fold, merged
from federator_analytics.transforms.partials import (
    BESIDE,
    COUNTED,
    PARTIALS,
    WIDE,
    Partial,
    arrow_type,
    slots_of,
)

FANOUT = 8
_SPAN = "span="
UNMERGED = frozenset((WIDE, "marks"))
"""Partials of which hardly any two rows have a key in common."""
FILE_ROWS_MAX = 2_000_000
"""About so many rows are held in memory to put them together: some 150 MB."""
GROUP_ROWS = 65_536
"""Rows of such a file that are read at once, of a window's."""


Among = Mapping[str, Sequence[object]]
"""Some columns' names, and of each the values that are wanted."""


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Micro-batches ``first`` to ``last``."""

    first: int
    last: int

    @property
    def level(self) -> int:
        """How often parts of this length were merged."""
        level, length = 0, self.last - self.first + 1
        while length >= FANOUT:
            level, length = level + 1, length // FANOUT
        return level

    @property
    def name(self) -> str:
        """The folder's: to Spark a partition."""
        return f"{_SPAN}{self.first}-{self.last}"


class State:
    """The parts below ``home``. Adding and merging may be done from two threads.

    Who holds ``lock`` reads: no part goes meanwhile.
    """

    def __init__(self, home: Path, kept: Mapping[str, Partial]) -> None:
        self._home = home
        self._kept = kept
        self.lock = threading.RLock()
        home.mkdir(parents=True, exist_ok=True)
        self._remove_covered()

    def spans(self) -> list[Span]:
        """The parts that count, in order, with no micro-batch twice."""
        found = sorted(self._found(), key=lambda span: (span.first, -span.last))
        kept: list[Span] = []
        for span in found:
            if not kept or span.first > kept[-1].last:
                kept.append(span)
        return kept

    def newest(self) -> int:
        """The last micro-batch that was folded; -1 before the first."""
        spans = self.spans()
        return spans[-1].last if spans else -1

    def add(self, batch: int, make: Callable[[Path], Path]) -> None:
        """Keep what one micro-batch gave.

        ``make`` writes the part's files (``fold_into``) below a folder that is empty, or one beside
        it; says which.
        """
        span = Span(batch, batch)
        os.replace(make(self._beside(span)), self._home / span.name)

    def rows(self, spans: Sequence[Span], part: str, among: Among | None = None) -> pa.Table:
        """One partial of these parts, not merged; of ``among`` only, if that is told."""
        how, files = self._kept[part], self._files(spans, part)
        return _read(files, how, among) if files else counted.empty(how)

    def merge_if_due(self, last: int) -> None:
        """Make one part of each eight neighbours of one level, up to a micro-batch."""
        while due := _due([span for span in self.spans() if span.last <= last]):
            span = Span(due[0].first, due[-1].last)
            beside = self._beside(span)
            for part, how in self._kept.items():
                home = home_of(part, beside)
                if part in UNMERGED:
                    self._put_together(due, part, home)
                elif rows := merged(how, self.rows(due, part)):
                    _write(rows, how, home / "part-0.parquet")
            os.replace(beside, self._home / span.name)
            self._remove_covered()

    def _put_together(self, spans: Sequence[Span], part: str, home: Path) -> None:
        """All rows in large files; a file that is large already is only linked."""
        how = self._kept[part]
        for number, paths in enumerate(_together(self._files(spans, part))):
            target = home / f"part-{number}.parquet"
            if len(paths) == 1:
                home.mkdir(parents=True, exist_ok=True)
                os.link(paths[0], target)
            else:
                rows = _read(paths, how)
                _write(rows.sort_by(how.keys[0]), how, target)

    def _beside(self, span: Span) -> Path:
        """An empty folder in which a part is made."""
        return emptied(self._home / f".{span.name}")

    def _files(self, spans: Sequence[Span], part: str) -> list[Path]:
        return [path for span in spans for path in files_of(part, self._home / span.name)]

    def _remove_covered(self) -> None:
        """Remove parts that a merged one covers: later, when somebody reads just now."""
        if not self.lock.acquire(blocking=False):
            return
        try:
            for span in set(self._found()) - set(self.spans()):
                shutil.rmtree(self._home / span.name)
        finally:
            self.lock.release()

    def _found(self) -> list[Span]:
        names = [path.name for path in self._home.iterdir() if not path.name.startswith(".")]
        return [Span(*map(int, name.removeprefix(_SPAN).split("-"))) for name in names]


def emptied(folder: Path) -> Path:
    """The folder, made, with nothing in it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def home_of(part: str, folder: Path) -> Path:
    """Where the rows of one partial are, in a part of the state."""
    return folder / folder_of(part)


def files_of(part: str, folder: Path) -> list[Path]:
    """The files there, in order."""
    return sorted(home_of(part, folder).glob("*.parquet"))


def _due(spans: Sequence[Span]) -> Sequence[Span]:
    """The oldest that are to be merged: taken in order, none is left alone between merged ones."""
    runs = (spans[start : start + FANOUT] for start in range(len(spans) - FANOUT + 1))
    return next((run for run in runs if len({span.level for span in run}) == 1), [])


def _read(paths: Sequence[Path], how: Partial, among: Among | None = None) -> pa.Table:
    """Files of one partial, by the names of its own columns."""
    slots = slots_of(how)
    wanted = [(slots[name], "in", values) for name, values in (among or {}).items()] or None
    files = list(map(str, paths))
    # Files of an earlier version may lack a column.
    schema = pa.schema([(slot, arrow_type(name)) for name, slot in slots.items()])
    told = pq.read_table(files, schema=schema, filters=wanted, partitioning=None)
    return told.rename_columns(list(slots))


def _write(rows: pa.Table, how: Partial, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    slots = slots_of(how)
    packed = rows.rename_columns([slots[name] for name in rows.column_names])
    pq.write_table(packed, path, row_group_size=GROUP_ROWS)


def _together(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """The files in order, as many at a time as ``FILE_ROWS_MAX`` allows."""
    taken: list[Path] = []
    rows = 0
    for path in paths:
        more = pq.read_metadata(path).num_rows
        if taken and rows + more > FILE_ROWS_MAX:
            yield taken
            taken, rows = [], 0
        taken.append(path)
        rows += more
    if taken:
        yield taken


_COLUMNS = {
    name: list(slots_of(how).values())
    for name, how in (PARTIALS | BESIDE | {HELD: HELD_RECORDS}).items()
}
"""The columns of PACKED that each partial has."""


def fold_into(
    batches: Iterable[pa.RecordBatch], folder: str, held: Held
) -> Iterator[pa.RecordBatch]:
    """Fold BLOCKS as ``transforms.folding.fold``; write what comes of it, and return its marks.

    ``folder`` is of a part of the state that is being made, on a disk of all of Spark's machines;
    ``held`` as of ``fold``. The marks are COUNTED_MARKS, not merged.
    """
    task = TaskContext.get()
    number, attempt = (task.partitionId(), task.taskAttemptId()) if task else (0, 0)
    files = PartFiles(Path(folder), f"part-{number}", attempt)
    slots = slots_of(COUNTED)
    for rows in fold(batches, held):
        if files.write(rows) == "marks":
            yield from (
                rows.select([slots[name] for name in COUNTED_MARKS.names])
                .rename_columns(COUNTED_MARKS.names)
                .to_batches()
            )
    files.close()


def check_is_seen(folder: Path, counted: pa.Table) -> None:
    """Look whether the driver sees what the workers wrote.

    They were told of ``folder``, and gave ``counted`` back.

    Raises ``UsageError``: it does not: they have another disk.
    """
    seen = sum(pq.read_metadata(path).num_rows for path in files_of("marks", folder))
    if seen != len(counted):
        raise UsageError(
            f"{folder}: Spark's workers wrote {len(counted)} rows and {seen} are there: "
            "a disk that all of Spark's machines share is wanted"
        )


class PartFiles:
    """Files of one name, of each partial one, that count when they are closed.

    Args:
        folder: Of the part.
        name: Without its end.
        attempt: Which of those that write files of this name.
    """

    def __init__(self, folder: Path, name: str, attempt: int = 0) -> None:
        self._folder, self._name = folder, name
        self._beside = f".{name}-{attempt}"
        self._open: dict[Path, pq.ParquetWriter] = {}

    def write(self, rows: pa.Table) -> str:
        """Write some rows of PACKED, all of one part, which is returned."""
        part: str = rows["part"][0].as_py()
        home = home_of(part, self._folder)
        rows = rows.select(_COLUMNS[part])
        if home not in self._open:
            home.mkdir(parents=True, exist_ok=True)
            self._open[home] = pq.ParquetWriter(home / self._beside, rows.schema)
        self._open[home].write_table(rows)
        return part

    def close(self) -> None:
        """Show them."""
        for home, file in self._open.items():
            file.close()
            os.replace(home / self._beside, home / f"{self._name}.parquet")
