"""The continuous report: the same tables, kept current while records arrive.

    with spark_session("stream") as spark:
        run(spark, stream_lines(spark, "landing"), "out")

Each micro-batch is folded into partial aggregates (``transforms.partials``), kept in
``jobs.state``; every ``refresh_s`` the tables are made of what is folded. Spark's checkpoint gives
a micro-batch of the same number the same lines again after a kill, and a number that the state
holds is not folded twice: so each line counts exactly once, wherever the kill fell. Records that
were read before, in whichever file, are known by their marks (``sources.duplicates``).

There is no watermark: partial aggregates are mergeable, so a late record lands in its own window
however late it is. What bounds the state: one mark per 62 records of a batch; sums do not
grow with time but with brokers, filters and pairs; each bucket of each delay histogram, events,
sampled hops and quarantined lines are kept as they are.
"""

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from analytics.errors import InputError, UsageError
from analytics.jobs.sizing import gathered, planned_for
from analytics.jobs.staging import Staged, discard, duplicates, settle, stage
from analytics.jobs.state import State
from analytics.jobs.tables import write
from analytics.sources.duplicates import MARK_KEYS, MARKS, marks, unseen
from analytics.sources.duplicates import merged as merged_marks
from analytics.sources.quarantine import counts
from analytics.transforms.packed import merged, together, unpack
from analytics.transforms.partials import WIDE, Partial, record_partials
from analytics.transforms.report import report_tables

REFRESH_S = 5
TRIGGER_S = 1
HOME = "_stream"
"""Below the output folder: checkpoint, state and staging, which belong together."""
_ONLY_STREAMED = {
    "marks": Partial(marks, MARK_KEYS, bits=("bits",)),
    "quarantine": Partial(lambda rows: rows, ("file", "line", "reason", "raw"), sums=("one",)),
    "duplicates": Partial(lambda rows: rows, ("federation",), sums=("records_twice",)),
}
"""What the state has beside ``record_partials``."""


class Fold:
    """Folds micro-batches into the state, and makes tables of it."""

    def __init__(self, spark: SparkSession, out: Path) -> None:
        self._out = out
        self._staging = str(out / HOME / "staging")
        self._how = record_partials()
        self._kept = self._how | _ONLY_STREAMED
        self.state = State(spark, out / HOME / "parts")
        self._shown: int | None = None

    def __call__(self, lines: DataFrame, batch: int) -> None:
        """Fold LINES, unless this micro-batch was folded before."""
        if batch <= self.state.newest():
            return
        parsed = stage(lines, self._staging)
        with self.state.lock, planned_for(parsed):
            staged = settle(parsed, self._staging)
            fresh = self._fresh(staged)
            rows = {name: how.pick(fresh.records) for name, how in self._how.items()}
            rows["marks"] = marks(fresh.records)
            rows["quarantine"] = fresh.quarantined.withColumn("one", F.lit(1))
            seen = self._how["agents_seen"].of(fresh.records)
            rows["duplicates"] = duplicates(fresh, seen)
            self.state.add(batch, together(rows, self._kept))
            for one in fresh.kept:
                one.unpersist()
        discard(self._staging)

    def refresh(self) -> bool:
        """Make the tables of what is folded; False if they are so already."""
        newest = self.state.newest()
        if newest == self._shown:
            return False
        with planned_for(self.state.read(self.state.spans())):
            self.state.merge_if_due()
            spans = self.state.spans()
            every = self.state.read(spans)
            small = merged(every.where(~F.col("part").isin(WIDE, "marks"))).coalesce(1).persist()
            parts = {name: unpack(small, name, how).coalesce(1) for name, how in self._kept.items()}
            parts[WIDE] = gathered(unpack(every, WIDE, self._kept[WIDE]))
            parts["quarantine"] = parts["quarantine"].select(
                "*", F.explode(F.sequence(F.lit(1).cast("long"), "one"))
            )
            parts["quarantine_counts"] = counts(parts["quarantine"])
            write(report_tables(parts), str(self._out))
            small.unpersist()
        self._shown = spans[-1].last if spans else -1
        return True

    def _fresh(self, staged: Staged) -> Staged:
        """Without the records that earlier micro-batches had."""
        kept = unpack(self.state.read(self.state.spans()), "marks", self._kept["marks"])
        new = marks(staged.records).withColumnRenamed("bits", "new_bits").drop("records")
        both = new.join(merged_marks(kept), list(MARK_KEYS))
        known = both.where(F.col("bits").bitwiseAND(F.col("new_bits")) != 0).persist()
        held = (*staged.kept, known)
        if known.isEmpty():
            return replace(staged, kept=held)
        records = unseen(staged.records, F.broadcast(known.select(*MARKS.fieldNames())))
        return replace(staged, records=records, kept=held)


def run(
    spark: SparkSession,
    lines: DataFrame,
    out: str,
    *,
    once: bool = False,
    refresh_s: int = REFRESH_S,
    on_refresh: Callable[[int], None] = lambda batch: None,
) -> None:
    """Keep the tables below ``out`` current until the query ends.

    Args:
        spark: The session.
        lines: A streaming DataFrame of LINES.
        out: Output folder, on a file system that all of Spark's machines see.
        once: End when everything that is there now was folded.
        refresh_s: Seconds between refreshes of the tables.
        on_refresh: Told the newest micro-batch in the tables, after each refresh.

    Raises:
        UsageError: ``out`` is on object storage.
        InputError: The checkpoint in ``out`` is not that of its state.
    """
    if "://" in out and not out.startswith("file://"):
        raise UsageError(f"{out}: the stream's state wants a file system that can rename folders")
    home = Path(out.removeprefix("file://")).absolute()
    fold = Fold(spark, home)
    trigger = {"availableNow": True} if once else {"processingTime": f"{TRIGGER_S} seconds"}
    writer = lines.writeStream.foreachBatch(fold).queryName("federator")
    writer = writer.option("checkpointLocation", str(home / HOME / "checkpoint"))
    query = writer.trigger(**trigger).start()
    try:
        _check_is_same(home / HOME / "query", str(query.id))
        while not query.awaitTermination(refresh_s):
            if fold.refresh():
                on_refresh(fold.state.newest())
    finally:
        with contextlib.suppress(Exception):  # what ended it is being raised already
            query.stop()
    if fold.refresh():
        on_refresh(fold.state.newest())


def _check_is_same(told: Path, query: str) -> None:
    """A state whose checkpoint was removed would take new micro-batches for old ones."""
    if not told.exists():
        told.write_text(query)
    elif (known := told.read_text()) != query:
        raise InputError(
            f"{told.parent}: its state is of query {known}, its checkpoint of {query}: "
            "remove the folder to begin again"
        )
