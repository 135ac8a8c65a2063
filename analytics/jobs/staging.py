"""The input, parsed once, as Parquet by table: every pass reads its own rows and columns only.

Nulls cost next to nothing there, so all tables have one schema. A pass over a table takes a small
part of what parsing takes, and memory does not grow with the input. Lines that are no records
have no table.
"""

import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from analytics.schemas.records import RECORD_LINE
from analytics.schemas.reports import REPORT_TABLES
from analytics.sources.duplicates import doubled, marks, once, single
from analytics.sources.lines import parse
from analytics.sources.quarantine import block_starts, quarantine

ROW_GROUP_BYTES = 16 * 2**20
"""A writer holds one in memory, one writer per core and table."""
JOBS_AT_ONCE = 4
"""Spark jobs side by side: small ones do not fill the cores alone."""
UNREPORTED = (
    "v",
    "cost",
    "frames_out",
    "frames_in",
    "bytes_in",
    "deferred",
    "links_known",
    "local_filters",
    "custody_gaps",
    "broker_clients",
    "broker_messages_in",
    "broker_messages_out",
    "link_count",
    "origin_time_us",
)
"""Keys that are checked, and that no report table is made of."""
RECORDS = StructType([field for field in RECORD_LINE.fields if field.name not in UNREPORTED])
"""What is staged of a record."""
_PLACE = [StructField(name, StringType()) for name in ("raw", "file")]
_PLACE += [StructField(name, LongType()) for name in ("block", "ordinal")]
_STAGED = StructType([*RECORDS.fields, *_PLACE])


@dataclass(frozen=True, slots=True)
class Staged:
    """``records``: good, each once. ``with_copies``: each as often as it was read.

    ``kept``: what is held in memory for these.
    """

    records: DataFrame
    with_copies: DataFrame
    quarantined: DataFrame
    kept: tuple[DataFrame, ...] = ()


def stage(lines: DataFrame, folder: str) -> DataFrame:
    """Parse LINES into ``folder``, which is replaced. What ``settle`` takes."""
    judged = parse(lines).withColumn("table", F.when(F.col("good"), F.col("table")))
    _write(judged.select(*_STAGED.fieldNames()), f"{folder}/lines")
    return lines.sparkSession.read.schema(_STAGED).parquet(f"{folder}/lines")


def settle(parsed: DataFrame, folder: str) -> Staged:
    """Part the records from bad lines and second copies."""
    good = parsed.where(F.col("table").isNotNull()).select(*RECORDS.fieldNames())
    doubles = doubled(marks(good)).persist()
    records = _each_once(good, doubles, f"{folder}/once")
    return Staged(records, good, _quarantined(parsed), kept=(doubles,))


def _each_once(records: DataFrame, doubles: DataFrame, folder: str) -> DataFrame:
    """The records without second copies; those that have one are settled in ``folder``."""
    if doubles.isEmpty():
        return records
    _write(once(records, doubles), folder)
    settled = records.sparkSession.read.schema(RECORDS).parquet(folder)
    return single(records, doubles).unionByName(settled.select(*records.columns))


def _quarantined(parsed: DataFrame) -> DataFrame:
    bad = parsed.where(F.col("table").isNull())
    if bad.isEmpty():
        return parsed.sparkSession.createDataFrame([], REPORT_TABLES["quarantine"])
    return quarantine(bad, block_starts(parsed))


def _write(rows: DataFrame, folder: str) -> None:
    rows.write.mode("overwrite").option("parquet.block.size", ROW_GROUP_BYTES).partitionBy(
        "table"
    ).parquet(folder)


def side_by_side(spark: SparkSession, jobs: Iterable[Callable[[], object]]) -> None:
    """Run Spark jobs from a few threads; the first error is raised when all have ended."""
    with ThreadPoolExecutor(JOBS_AT_ONCE, thread_name_prefix="job") as pool:
        told = [pool.submit(inheritable_thread_target(spark)(job)) for job in jobs]
    for one in told:
        one.result()


def discard(folder: str) -> None:
    """Remove a staging folder; one on object storage is left for the next run to replace."""
    if "://" not in folder:
        shutil.rmtree(folder, ignore_errors=True)


def duplicates(staged: Staged, agents_seen: DataFrame) -> DataFrame:
    """(federation, records_twice): how many copies were removed, where any were.

    Args:
        staged: The input.
        agents_seen: The partial of this name, of ``staged.records``.
    """
    read = staged.with_copies.groupBy("federation").agg(F.count(F.lit(1)).alias("read"))
    left = agents_seen.groupBy("federation").agg(F.sum("records").alias("left"))
    return read.join(left, "federation", "left").select(
        "federation",
        (F.col("read") - F.coalesce("left", F.lit(0))).alias("records_twice"),
    )
