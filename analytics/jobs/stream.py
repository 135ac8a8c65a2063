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
grow with time but with brokers, filters and pairs; delays grow with windows and the distinct
microseconds in them; events, sampled hops and quarantined lines are kept as they are.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from analytics.errors import InputError, UsageError
from analytics.jobs.sizing import gathered, planned_for
from analytics.jobs.staging import DUPLICATES, RECORDS, Staged, discard, duplicates, settle, stage
from analytics.jobs.state import Merge, State
from analytics.jobs.tables import write
from analytics.schemas.reports import REPORT_TABLES
from analytics.sources.duplicates import MARK_KEYS, MARKS, marks, merged, unseen
from analytics.sources.quarantine import counts
from analytics.transforms.partials import record_partials
from analytics.transforms.report import report_tables

REFRESH_S = 5
TRIGGER_S = 1
HOME = "_stream"
"""Below the output folder: checkpoint, state and staging, which belong together."""
WIDE = ("delays", "marks")
"""Not kept in memory while the tables are made."""


class Fold:
    """Folds micro-batches into the state, and makes tables of it."""

    def __init__(self, spark: SparkSession, out: Path) -> None:
        self._spark = spark
        self._out = out
        self._staging = str(out / HOME / "staging")
        self._how = record_partials()
        self.state = State(spark, out / HOME / "parts", self._schemas())
        self._shown: int | None = None

    def __call__(self, lines: DataFrame, batch: int) -> None:
        """Fold LINES, unless this micro-batch was folded before."""
        if batch <= self.state.newest():
            return
        parsed = stage(lines, self._staging)
        with self.state.lock, planned_for(parsed):
            staged = settle(parsed, self._staging)
            fresh = self._fresh(staged)
            made = {name: how.of(fresh.records) for name, how in self._how.items()}
            made["marks"] = marks(fresh.records).drop("records")
            made["quarantine"] = fresh.quarantined
            made["duplicates"] = duplicates(fresh, made["agents_seen"])
            self.state.add(batch, made)
        discard(self._staging)

    def refresh(self) -> bool:
        """Make the tables of what is folded; False if they are so already."""
        newest = self.state.newest()
        if newest == self._shown:
            return False
        with planned_for(self.state.read("delays", self.state.spans())):
            self.state.merge_if_due(self._merges())
            spans = self.state.spans()
            parts = {
                name: merge(self.state.read(name, spans)) for name, merge in self._merges().items()
            }
            kept = [part.persist() for name, part in parts.items() if name not in WIDE]
            parts = {name: gathered(part) for name, part in parts.items()}
            parts["quarantine_counts"] = counts(parts["quarantine"])
            write(report_tables(parts), str(self._out))
            for part in kept:
                part.unpersist()
        self._shown = spans[-1].last if spans else -1
        return True

    def _fresh(self, staged: Staged) -> Staged:
        """Without the records that earlier micro-batches had."""
        seen = merged(self.state.read("marks", self.state.spans()))
        new = marks(staged.records).withColumnRenamed("bits", "new_bits").drop("records")
        both = seen.join(new, list(MARK_KEYS))
        known = both.where(F.col("bits").bitwiseAND(F.col("new_bits")) != 0).persist()
        if known.isEmpty():
            return staged
        records = unseen(staged.records, F.broadcast(known.select(*MARKS.fieldNames())))
        return Staged(records, staged.with_copies, staged.quarantined)

    def _merges(self) -> dict[str, Merge]:
        return {name: how.merged for name, how in self._how.items()} | {
            "marks": merged,
            "quarantine": lambda rows: rows,
            "duplicates": lambda rows: rows.groupBy("federation").agg(
                F.sum("records_twice").alias("records_twice")
            ),
        }

    def _schemas(self) -> dict[str, StructType]:
        nothing = self._spark.createDataFrame([], RECORDS)
        return {name: how.of(nothing).schema for name, how in self._how.items()} | {
            "marks": MARKS,
            "quarantine": REPORT_TABLES["quarantine"],
            "duplicates": DUPLICATES,
        }


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
