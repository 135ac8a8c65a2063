"""The continuous report: the same tables, kept current while records arrive.

    with spark_session("stream") as spark:
        run(spark, stream_lines(spark, "landing"), "out")

Each micro-batch is folded into partial aggregates (``transforms.partials``), kept in
``jobs.state``; every ``refresh_s`` the tables are made of what is folded. Spark's checkpoint gives
a micro-batch of the same number the same lines again after a kill, and a number that the state
holds is not folded twice: so each line counts exactly once, wherever the kill fell.

Which records were read before, in whichever file, is decided in the driver, beside the state.
Agents number their batches, and land them in order: of a spool, a batch above the highest that was
read before is new, and no mark need be looked at. The records of all other batches are held
(``transforms.folding``), and told apart one by one by the marks (``sources.duplicates``) that the
state keeps of them.

There is no watermark: partial aggregates are mergeable, so a late record lands in its own window
however late it is. What bounds the state: one mark per 62 records of a batch; sums do not
grow with time but with brokers, filters and pairs; each bucket of each delay histogram, events,
sampled hops and quarantined lines are kept as they are.
"""

import contextlib
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from federator_analytics.digest.tables import part_files
from federator_analytics.errors import InputError, UsageError
from federator_analytics.jobs.folded import Folded
from federator_analytics.jobs.staging import small_session
from federator_analytics.jobs.state import (
    Among,
    PartFiles,
    State,
    check_is_seen,
    emptied,
    files_of,
    fold_into,
    home_of,
)
from federator_analytics.jobs.tables import append, append_windows, as_written, save, write
from federator_analytics.sources.duplicates import (
    COUNTED_MARKS,
    MARK_KEYS,
    WORD_BITS,
    by_spool,
    merged_marks,
)
from federator_analytics.sources.lines import parse
from federator_analytics.transforms.folding import HELD, HELD_RECORDS, Folding, Held
from federator_analytics.transforms.partials import BESIDE, PARTIALS, as_packed, slots_of
from federator_analytics.transforms.report import GROWING, report_tables

HELD_AT_ONCE = 50_000
"""Held records that are in memory together."""


class Highest:
    """The highest batch of each spool that was folded. ``marks``: of all that was folded so far."""

    def __init__(self, marks: pa.Table) -> None:
        self._of: dict[str, int] = {}
        self.note(marks)

    def note(self, marks: pa.Table) -> None:
        """Remember the batches of these marks as folded."""
        told = marks.group_by("spool", use_threads=False).aggregate([("batch", "max")]).to_pylist()
        for row in told:
            spool, batch = row["spool"], row["batch_max"]
            self._of[spool] = max(batch, self._of.get(spool, 0))

    def doubtful(self, counted: pa.Table) -> Held:
        """The batches of COUNTED_MARKS with a record twice, or perhaps one that was read before."""
        marks = merged_marks(counted)
        twice = np.bitwise_count(marks["bits"].to_numpy()) < marks["records"].to_numpy()
        spools, batches = marks["spool"].to_pylist(), marks["batch"].to_pylist()
        return by_spool(
            (spool, batch)
            for spool, batch, is_twice in zip(spools, batches, twice, strict=True)
            if is_twice or batch <= self._of.get(spool, 0)
        )


def tell_apart(folder: Path, known: pa.Table) -> None:
    """Fold each of the held records once, and none that is known.

    Args:
        folder: A part of the state that is being made, in which they are.
        known: The partial ``marks`` of their batches, not merged.
    """
    held = files_of(HELD, folder)
    if not held:
        return
    folding, copies = Folding(), Counter[str]()
    made: list[pa.Table] = []
    for lines in _first_ones(_rows(held), _bits(known), copies):
        records, bad = parse(lines)
        assert not bad, "they were parsed before"
        made += folding.add(records)
    made += folding.rest()
    if copies:
        told = {"federation": list(copies), "records_twice": list(copies.values())}
        made.append(as_packed("duplicates", BESIDE["duplicates"], pa.table(told)))
    files = PartFiles(folder, "told-apart")
    for rows in made:
        files.write(rows)
    files.close()
    shutil.rmtree(home_of(HELD, folder))


def _rows(held: list[Path]) -> Iterator[pa.RecordBatch]:
    slots = [slots_of(HELD_RECORDS)[name] for name in HELD_RECORDS.keys]
    for path in held:
        for rows in pq.ParquetFile(path).iter_batches(HELD_AT_ONCE, columns=slots):
            yield rows.select(slots).rename_columns(list(HELD_RECORDS.keys))


def _bits(known: pa.Table) -> dict[tuple[object, ...], int]:
    """The bits of each word that has a mark."""
    bits: dict[tuple[object, ...], int] = {}
    for *key, one in zip(*(known[name].to_pylist() for name in (*MARK_KEYS, "bits")), strict=True):
        bits[tuple(key)] = bits.get(tuple(key), 0) | one
    return bits


def _first_ones(
    held: Iterator[pa.RecordBatch], bits: dict[tuple[object, ...], int], copies: Counter[str]
) -> Iterator[bytes]:
    """Blocks of the lines of those that have no bit yet; ``copies``: of a federation's others."""
    for rows in held:
        lines: list[str] = []
        for broker, batch, row, spool, federation, raw in zip(
            *(column.to_pylist() for column in rows.columns), strict=True
        ):
            key, bit = (broker, spool, batch, row // WORD_BITS), 1 << row % WORD_BITS
            if bits.get(key, 0) & bit:
                copies[federation] += 1
            else:
                bits[key] = bits.get(key, 0) | bit
                lines.append(raw)
        yield "\n".join(lines).encode()


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
        tables = dict(report_tables(parts, facts, self._folded.found(session, facts)))
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
        name = Path(path).name
        rows = table.toArrow().cast(as_written(name))
        before = [] if self._shown is None else part_files(self._out / name)
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
        merging: Future[None] = aside.submit(lambda: None)
        rest_s = float(refresh_s)
        try:
            _check_is_same(home / HOME / "query", str(query.id))
            while not query.awaitTermination(rest_s):  # type: ignore[arg-type]  # takes parts too
                begun_s = time.monotonic()
                if fold.refresh():
                    on_refresh(fold.state.newest())
                if merging.done():
                    merging.result()
                    merging = aside.submit(fold.merge)
                rest_s = max(REST_S, refresh_s - (time.monotonic() - begun_s))
        finally:
            with contextlib.suppress(Exception):  # what ended it is being raised already
                query.stop()
        merging.result()
    if fold.refresh():
        on_refresh(fold.state.newest())
    fold.merge()


def _check_is_same(told: Path, query: str) -> None:
    """A state whose checkpoint was removed would take new micro-batches for old ones."""
    if not told.exists():
        told.write_text(query)
    elif (known := told.read_text()) != query:
        raise InputError(
            f"{told.parent}: its state is of query {known}, its checkpoint of {query}: "
            "remove the folder to begin again"
        )
