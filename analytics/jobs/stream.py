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
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from analytics.errors import InputError, UsageError
from analytics.jobs.folded import Folded
from analytics.jobs.sizing import small_session
from analytics.jobs.staging import discard, settle
from analytics.jobs.state import State
from analytics.jobs.tables import save, write
from analytics.sources.quarantine import counts, each
from analytics.transforms.packed import unpack
from analytics.transforms.partials import BESIDE, PARTIALS
from analytics.transforms.report import report_tables

REFRESH_S = 5
TRIGGER_S = 1
HOME = "_stream"
"""Below the output folder: checkpoint, state and staging, which belong together."""


class Fold:
    """Folds micro-batches into the state, and makes tables of it."""

    def __init__(self, spark: SparkSession, out: Path) -> None:
        self._out = out
        self._staging = str(out / HOME / "staging")
        self._kept = PARTIALS | BESIDE
        self.state = State(spark, out / HOME / "parts", self._kept)
        self._spark = spark
        self._folded = Folded(self._kept)
        self._shown: int | None = None

    def __call__(self, blocks: DataFrame, batch: int) -> None:
        """Fold BLOCKS, unless this micro-batch was folded before."""
        if batch <= self.state.newest():
            return
        with self.state.lock:
            spans = self.state.spans()
            known = unpack(self.state.read(spans), "marks", self._kept["marks"]) if spans else None
            self.state.add(batch, settle(blocks, self._staging, known))
        discard(self._staging)

    def refresh(self) -> bool:
        """Make the tables of what is folded; False if they are so already."""
        if self.state.newest() == self._shown:
            return False
        session = small_session(self._spark)
        self._folded.take(self.state, session)
        parts, facts = self._folded.parts(session), self._folded.facts()
        parts["quarantine"] = each(parts["quarantine"])
        parts["quarantine_counts"] = counts(parts["quarantine"])
        tables = report_tables(parts, facts, self._folded.quantiles(session, facts))
        write(tables, str(self._out), self._save)
        self._shown = self._folded.newest
        self.state.merge_if_due(self._shown)
        return True

    def _save(self, table: DataFrame, path: str) -> None:
        rows = table.toArrow()
        save(self._folded.whole(rows) if Path(path).name == "delay_over_time" else rows, path)


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
        lines: A streaming DataFrame of BLOCKS.
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
