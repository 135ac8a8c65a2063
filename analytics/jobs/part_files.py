"""What the tasks of a micro-batch write of a part of the stream's state: a file per partial.

    counted = blocks.mapInArrow(partial(fold_into, folder=folder, held={}), COUNTED_MARKS).toArrow()

The worker that folds writes. By Spark's own writer all rows would go to Java, be parted there and
written with much ado per file, which takes longer than to read and fold them. A task that is run
again, or twice at once, writes the same rows under the same names, each file renamed into place
whole.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext

from analytics.errors import UsageError
from analytics.jobs.state import files_of, home_of
from analytics.sources.duplicates import COUNTED_MARKS
from analytics.transforms.folding import HELD, HELD_RECORDS, Held, fold
from analytics.transforms.packed import slots_of
from analytics.transforms.partials import BESIDE, COUNTED, PARTIALS

_COLUMNS = {
    name: list(slots_of(how).values())
    for name, how in (PARTIALS | BESIDE | {HELD: HELD_RECORDS}).items()
}
"""Of PACKED those that each partial has."""


def fold_into(
    batches: Iterable[pa.RecordBatch], folder: str, held: Held
) -> Iterator[pa.RecordBatch]:
    """Fold BLOCKS as ``transforms.folding.fold``, and write what comes of it.

    Args:
        batches: BLOCKS.
        folder: Of a part of the state that is being made, on a disk of all of Spark's machines.
        held: As of ``fold``.

    Returns:
        COUNTED_MARKS of what was folded, not merged.
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

    Args:
        folder: As they were told it.
        counted: What all of them gave back.

    Raises:
        UsageError: It does not: they have another disk.
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
        """Some rows of PACKED, all of one part; which."""
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
