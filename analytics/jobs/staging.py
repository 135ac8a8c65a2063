"""The input, parsed once, as Parquet: every pass reads only the columns it needs.

Nulls cost next to nothing there, so the union of all tables is one flat file set. A pass over it
takes a small part of what parsing takes, and memory does not grow with the input.
"""

import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from analytics.schemas.records import RECORD_LINE
from analytics.sources.duplicates import doubled, each_once, marks
from analytics.sources.lines import parse
from analytics.sources.quarantine import block_starts, quarantine

ROW_GROUP_BYTES = 32 * 2**20
"""A writer holds one in memory, one writer per core."""
JOBS_AT_ONCE = 4
"""Spark jobs side by side: small ones do not fill the cores alone."""


@dataclass(frozen=True, slots=True)
class Staged:
    """``records``: good, each once. ``doubles``: the marks among them that hold a record twice."""

    records: DataFrame
    with_copies: DataFrame
    quarantined: DataFrame


def stage(lines: DataFrame, folder: str) -> Staged:
    """Parse LINES into ``folder``, which is replaced."""
    parse(lines).write.mode("overwrite").option("parquet.block.size", ROW_GROUP_BYTES).parquet(
        folder
    )
    spark = lines.sparkSession
    parsed = spark.read.parquet(folder)
    good = parsed.where("good").select(*RECORD_LINE.fieldNames())
    doubles = doubled(marks(good)).persist()
    records = good if doubles.isEmpty() else each_once(good, doubles)
    return Staged(records, good, quarantine(parsed, block_starts(parsed)))


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


def duplicates(staged: Staged) -> DataFrame:
    """(federation, records_twice): how many copies were removed."""
    read = staged.with_copies.groupBy("federation").agg(F.count(F.lit(1)).alias("read"))
    left = staged.records.groupBy("federation").agg(F.count(F.lit(1)).alias("left"))
    return read.join(left, "federation").select(
        "federation", (F.col("read") - F.col("left")).alias("records_twice")
    )
