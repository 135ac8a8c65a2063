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
import shutil
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from analytics.errors import InputError, UsageError
from analytics.jobs.folded import Folded
from analytics.jobs.sizing import small_session
from analytics.jobs.state import Among, State, check_is_seen, emptied, fold_into
from analytics.jobs.tables import append, append_windows, files_of, save, write
from analytics.jobs.told_apart import Highest, tell_apart
from analytics.sources.duplicates import COUNTED_MARKS
from analytics.transforms.folding import Held
from analytics.transforms.partials import BESIDE, PARTIALS
from analytics.transforms.report import GROWING, report_tables

REFRESH_S = 5
REST_S = 0.1
"""Between two refreshes, at least."""
TRIGGER_S = 1
HOME = "_stream"
"""Below the output folder: checkpoint and state, which belong together."""


class Fold:
    """Folds micro-batches into the state, and makes tables of it.

    If ``compiled``, it makes Java of the tables' queries: they will come again and again.
    """

    def __init__(self, spark: SparkSession, out: Path, *, compiled: bool) -> None:
        self._out = out
        self._compiled = compiled
        self._kept = PARTIALS | BESIDE
        self.state = State(out / HOME / "parts", self._kept)
        self._spark = spark
        self._folded = Folded(self._kept)
        self._highest = Highest(self.state.rows(self.state.spans(), "marks"))
        self._shown: int | None = None

    def __call__(self, blocks: DataFrame, batch: int) -> None:
        """Fold BLOCKS, unless this micro-batch was folded before."""
        if batch <= self.state.newest():
            return
        self.state.add(batch, lambda folder: self._fold(blocks, folder))

    def _fold(self, blocks: DataFrame, folder: Path) -> Path:
        """Fold them; if some may have been read before, again, and tell those apart.

        That into another folder: a task that Spark has given up may still write into the first.
        """
        counted = _folded_into(folder, blocks, {})
        if held := self._highest.doubtful(counted):
            shutil.rmtree(folder)
            folder = emptied(folder.with_name(f"{folder.name}-again"))
            _folded_into(folder, blocks, held)
            batches = sorted(set(chain.from_iterable(held.values())))
            among: Among = {"spool": sorted(held), "batch": batches}
            with self.state.lock:
                known = self.state.rows(self.state.spans(), "marks", among)
            tell_apart(folder, known)
        self._highest.note(counted)
        return folder

    def refresh(self) -> bool:
        """Make the tables of what is folded; False if they are so already."""
        if self.state.newest() == self._shown:
            return False
        session = small_session(self._spark, compiled=self._compiled)
        with self.state.lock:
            self._folded.take(self.state)
        parts, facts = self._folded.parts(session), self._folded.facts()
        tables = dict(report_tables(parts, facts, self._folded.quantiles(session, facts)))
        kept = [] if self._shown is None else self._folded.unchanged()
        for name in kept:
            del tables[name]
        write(session, tables, str(self._out), self._save, kept)
        self._shown = self._folded.newest
        return True

    def merge(self) -> None:
        """Merge parts of the state that the tables hold."""
        if self._shown is not None:
            self.state.merge_if_due(self._shown)

    def _save(self, table: DataFrame, path: str) -> None:
        rows = table.toArrow()
        name = Path(path).name
        before = [] if self._shown is None else files_of(self._out / name)
        match name:
            case "delay_over_time":
                windows = self._folded.windows()
                if windows is None:
                    save(rows, path)
                else:
                    append_windows(rows, windows, before, path)
            case "convergence":
                save(self._folded.convergence(rows), path)
            case _ if name in GROWING:
                append(rows, before, path)
            case _:
                save(rows, path)


def _folded_into(folder: Path, blocks: DataFrame, held: Held) -> pa.Table:
    """COUNTED_MARKS of the blocks, that were folded into files there."""
    folds = partial(fold_into, folder=str(folder), held=held)
    counted = blocks.mapInArrow(folds, COUNTED_MARKS).toArrow()
    check_is_seen(folder, counted)
    return counted


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
        lines: Streaming BLOCKS.
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
    fold = Fold(spark, home, compiled=not once)
    trigger = {"availableNow": True} if once else {"processingTime": f"{TRIGGER_S} seconds"}
    writer = lines.writeStream.foreachBatch(fold).queryName("federator")
    writer = writer.option("checkpointLocation", str(home / HOME / "checkpoint"))
    query = writer.trigger(**trigger).start()
    with ThreadPoolExecutor(1, thread_name_prefix="merge") as aside:
        merging: Future[None] | None = None
        rest_s = float(refresh_s)
        try:
            _check_is_same(home / HOME / "query", str(query.id))
            while not query.awaitTermination(rest_s):  # type: ignore[arg-type]  # takes parts too
                begun_s = time.monotonic()
                if fold.refresh():
                    on_refresh(fold.state.newest())
                if merging is None or merging.done():
                    _raise_of(merging)
                    merging = aside.submit(fold.merge)
                rest_s = max(REST_S, refresh_s - (time.monotonic() - begun_s))
        finally:
            with contextlib.suppress(Exception):  # what ended it is being raised already
                query.stop()
        _raise_of(merging)
    if fold.refresh():
        on_refresh(fold.state.newest())
    fold.merge()


def _raise_of(ended: "Future[None] | None") -> None:
    """What went wrong aside, here."""
    if ended is not None:
        ended.result()


def _check_is_same(told: Path, query: str) -> None:
    """A state whose checkpoint was removed would take new micro-batches for old ones."""
    if not told.exists():
        told.write_text(query)
    elif (known := told.read_text()) != query:
        raise InputError(
            f"{told.parent}: its state is of query {known}, its checkpoint of {query}: "
            "remove the folder to begin again"
        )
