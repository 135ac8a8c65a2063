"""The batch report: landing folders to every report table.

    with spark_session("report") as spark:
        run(spark, ["landing"], "out")

Each line is parsed and folded once, where it is read; the tables come of the partial aggregates.

The quantiles of the delays of a log of any size are exact. Every bucket of every histogram counts,
and they are many; so they stay in arrays (``transforms.chunks``), and Spark only brings those of a
pair together, for the pair's own quantiles. To gather all pairs' would be to sort everything: so
groups over many pairs take two looks. The first counts in steps of about a millisecond, which tells
in which step each quantile lies. The second counts the single values of those steps alone: however
long the log is, there are only so many.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from federator_analytics.jobs.staging import (
    discard,
    folder_of,
    gathered,
    load,
    planned_for,
    save,
    settle,
)
from federator_analytics.jobs.tables import write
from federator_analytics.schemas.fields import struct
from federator_analytics.schemas.reports import REPORT_TABLES
from federator_analytics.transforms import counted, hop_times
from federator_analytics.transforms.chunks import ARRAYS, FILES, FLOWS, delays_of
from federator_analytics.transforms.clocks import facts_of
from federator_analytics.transforms.delays import FLOW, MERGING, PERCENTS, SCOPES, WAY
from federator_analytics.transforms.folding import merged
from federator_analytics.transforms.load import median_round_trips
from federator_analytics.transforms.loss import COUNTS, OF_BOOK, Book, book_of, judged_batches
from federator_analytics.transforms.partials import (
    BESIDE,
    PARTIALS,
    WIDE,
    Partial,
    merged_parts,
    unpack,
)
from federator_analytics.transforms.report import (
    Found,
    quarantine_counts,
    quarantine_lines,
    report_tables,
)

STEP_BITS = 10
"""Steps are of 2 ** 10: of microseconds, about a millisecond."""
FLOWS_AT_ONCE = 256
"""Flows of chunks whose delays are in a worker's memory together: some hundreds each."""
FOUND = struct(
    *("window_us long?", "origin long?", "destination long?", "hops long?", "qos long?"),
    *("strategy string?", "step long?", "publications long?"),
    *(f"{name} long?" for name in PERCENTS),
    "part string",
)
"""What is found of one pair. ``part``: a scope, ``WINDOWS`` or ``STEPS``."""
WINDOWS, STEPS = "windows", "steps"
_OF_PAIR = tuple(scope for scope in SCOPES if scope not in MERGING)
_MEMBER = ("hops", "strategy")
"""What decides in which groups over many pairs a delay is."""
_STEP = Partial((*_MEMBER, "step"), sums=("publications",))
_VALUE = Partial((*_MEMBER, "value_us"), sums=("publications",))
_VALUES = struct("hops long", "strategy string", "value_us long", "publications long")
"""The schema of _VALUE."""


def sorted_delays(chunks: DataFrame, pairs: DataFrame, folder: str) -> tuple[DataFrame, DataFrame]:
    """(scope, *FLOW, *PERCENTS), corrected; and (window_us, *WAY, publications, *PERCENTS), not.

    Something may be kept in ``folder`` while the answer is used; it is replaced.
    """
    flows = unpack(chunks, WIDE, FLOWS, *ARRAYS)
    judged = flows.join(F.broadcast(pairs), ["origin", "destination"]).drop("floor_us")
    save(judged.groupBy("origin", "destination").applyInArrow(_of_pair, FOUND), folder)
    found = load(chunks.sparkSession, folder, FOUND)
    steps = _STEP.merged(found.where(F.col("part") == STEPS)).toArrow()
    sought = _sought(steps)
    near = judged.mapInArrow(partial(_values_near, sought=sought), _VALUES)
    values = _VALUE.merged(near).toArrow()
    over_pairs = chunks.sparkSession.createDataFrame(_over_pairs(steps, sought, values))
    scopes = found.where(F.col("part").isin(*_OF_PAIR)).withColumnRenamed("part", "scope")
    told = ("scope", *FLOW, *PERCENTS)
    windows = found.where(F.col("part") == WINDOWS)
    return (
        scopes.select(*told).union(over_pairs.select(*told)),
        windows.select("window_us", *WAY, "publications", *PERCENTS),
    )


def _of_pair(flows: pa.Table) -> pa.Table:
    """FOUND of all flows of a pair, with ``offset_us`` and ``quality``."""
    delays = delays_of(flows)
    (told,) = flows.slice(0, 1).to_pylist()
    judged = {(told["origin"], told["destination"]): (told["offset_us"], told["quality"])}
    of_flows, of_windows = counted.of_flows(), counted.of_windows()
    of_flows.add(delays)
    of_windows.add(delays)
    scopes = counted.over_scopes(of_flows, judged, _OF_PAIR).rename_columns({"scope": "part"})
    windows, steps = counted.over_windows(of_windows), merged(_STEP, _stepped(delays))
    every = pa.concat_tables(
        [
            to_arrow_schema(FOUND).empty_table(),
            scopes,
            windows.append_column("part", pa.repeat(WINDOWS, len(windows))),
            steps.append_column("part", pa.repeat(STEPS, len(steps))),
        ],
        promote_options="default",
    )
    return every.select(FOUND.fieldNames())


def _stepped(delays: pa.Table) -> pa.Table:
    """Corrected, with each one's step; without those that no merging group has."""
    believed = delays.filter(pc.not_equal(delays["quality"], "flagged"))
    offset_us = pc.fill_null(believed["offset_us"], 0)
    value_us = pc.subtract(believed["value_us"], offset_us)
    step = pc.shift_right(value_us, STEP_BITS)
    told = believed.drop_columns(["value_us"]).append_column("value_us", value_us)
    return told.append_column("step", step)


def _sought(steps: pa.Table) -> pa.Table:
    """(*_MEMBER, step): those that hold a quantile of a group that the member is in."""
    groups = _over_members(steps, steps["step"])
    members = steps.group_by(list(_MEMBER)).aggregate([]).to_pylist()
    rows = {
        (*member.values(), group[percent])
        for group in groups.to_pylist()
        for member in members
        if all(group[key] in (None, member[key]) for key in _MEMBER)
        for percent in PERCENTS
    }
    told = [dict(zip(_STEP.keys, row, strict=True)) for row in sorted(rows)]
    return pa.Table.from_pylist(told, counted.empty(Partial(_STEP.keys)).schema)


def _values_near(batches: Iterable[pa.RecordBatch], sought: pa.Table) -> Iterator[pa.RecordBatch]:
    """_VALUES of flows, of those steps alone."""
    for batch in batches:
        for start in range(0, len(batch), FLOWS_AT_ONCE):
            delays = _stepped(delays_of(pa.table(batch.slice(start, FLOWS_AT_ONCE))))
            of_steps = delays.select([*_STEP.columns, "value_us"])
            near = of_steps.join(sought, list(_STEP.keys), join_type="left semi")
            yield from merged(_VALUE, near).combine_chunks().to_batches()


def _over_pairs(steps: pa.Table, sought: pa.Table, values: pa.Table) -> pa.Table:
    """Quantiles of the groups over pairs. Where none lies, all of a step stands for its first."""
    far = steps.join(sought, list(_STEP.keys), join_type="left anti")
    firsts = far.append_column("value_us", pc.shift_left(far["step"], STEP_BITS))
    both = [rows.select(list(_VALUE.columns)) for rows in (firsts, values)]
    rows = pa.concat_tables(both, promote_options="default")
    return _over_members(rows, rows["value_us"])


def _over_members(rows: pa.Table, values: pa.ChunkedArray) -> pa.Table:
    """``counted.over_scopes`` of the merging scopes; nobody asks of which pair a row is."""
    none = pa.array([0] * len(rows), pa.int64())
    beside = {"origin": none, "destination": none, "qos": none, "value_us": values}
    told = {name: rows[name] for name in (*_MEMBER, "publications")}
    ranked = counted.of_flows()
    ranked.add(pa.table(told | beside))
    return counted.over_scopes(ranked, {(0, 0): (None, "ok")}, MERGING)


STAGING = "_staging"


def run(spark: SparkSession, inputs: Sequence[str], out: str) -> None:
    """Compute the tables of REPORT_TABLES and replace those below ``out``.

    Args:
        inputs: Landing folders, folders of spools, or segment files.
        out: A folder or URL that all of Spark's machines see: the partials are staged there.

    Raises ``InputMissingError``: an input is not there.
    """
    home = out if "://" in out else str(Path(out).absolute())
    staging = f"{home}/{STAGING}"
    try:
        chunks = settle(spark, inputs, staging)
        with planned_for(chunks, but=folder_of(WIDE), compiled=False):
            parts = _parts(chunks)
            facts = facts_of(parts["pair_windows"], parts["links"])
            pairs = facts.pairs(chunks)
            scopes, windows = sorted_delays(chunks, pairs, f"{staging}/delays")
            steps = hop_times.steps(parts["hops"], pairs)
            book = book_of({name: parts[name].toArrow() for name in OF_BOOK}, facts)
            found = Found(
                lambda: scopes,
                lambda: windows,
                lambda: hop_times.step_quantiles(steps),
                lambda: _loss(parts["offered"], parts["arrived"], book),
            )
            write(spark, report_tables(parts, facts, found), home)
    finally:
        spark.catalog.clearCache()
        discard(staging)


def _loss(offered: DataFrame, arrived: DataFrame, book: Book) -> DataFrame:
    names = COUNTS.names
    none = F.lit(None).cast("long").alias("destination")
    offers = offered.select(*(none if name == "destination" else name for name in names))
    flows = gathered(offers.union(arrived.select(*names)).repartition("filter", "origin"))
    return flows.mapInArrow(partial(judged_batches, book=book), REPORT_TABLES["loss"])


def _parts(chunks: DataFrame) -> dict[str, DataFrame]:
    small = gathered(
        merged_parts(chunks.where(~F.col("part").isin(WIDE, "marks", FILES)))
    ).persist()
    parts = {
        name: gathered(unpack(small, name, how))
        for name, how in (PARTIALS | BESIDE).items()
        if name not in (WIDE, "marks")
    }
    parts["quarantine"] = quarantine_lines(parts["quarantine"])
    return parts | {
        "quarantine_counts": quarantine_counts(parts["quarantine"]),
        "happened": parts["events"],
        "unsettled": parts["events"],
        "median_round_trips": median_round_trips(parts["round_trips"]),
    }
