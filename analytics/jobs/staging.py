"""The input as partial aggregates, each record once, and where they lie until they are merged.

Spark hands blocks of lines to Python workers and keeps what they fold them into
(``transforms.folding``). A first look finds the batches that are there twice
(``sources.duplicates``); their records alone go through Spark, which keeps one of each, and are
folded after the others.
"""

import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from analytics.sources.duplicates import COUNTED_MARKS, doubles, mark, once
from analytics.sources.lines import BLOCKS
from analytics.transforms.folding import HELD, HELD_RECORDS, fold
from analytics.transforms.packed import PACKED, pack, unpack
from analytics.transforms.partials import BESIDE

JOBS_AT_ONCE = 4
"""Spark jobs side by side: small ones do not fill the cores alone."""


def settle(blocks: DataFrame, folder: str) -> DataFrame:
    """PACKED of BLOCKS: each record once, and not merged. To use it twice folds twice.

    Args:
        blocks: The input. It is read twice, and a third time by who uses the answer.
        folder: Where something may be kept while the answer is used; it is replaced.
    """
    twice = doubles(blocks.mapInArrow(mark, COUNTED_MARKS))
    rows = blocks.mapInArrow(partial(fold, held=twice), PACKED)
    if not twice:
        return rows
    save(rows, f"{folder}/first")
    rows = load(blocks.sparkSession, f"{folder}/first")
    held = unpack(rows, HELD, HELD_RECORDS)
    save(pack(HELD, HELD_RECORDS, once(held)), f"{folder}/once")
    kept = unpack(load(blocks.sparkSession, f"{folder}/once"), HELD, HELD_RECORDS)
    again = kept.select(
        F.col("raw").cast("binary").alias("content"),
        F.lit(None).cast("string").alias("file"),
        F.lit(None).cast("long").alias("line"),
    ).select(*BLOCKS.fieldNames())
    copies = pack("duplicates", BESIDE["duplicates"], _copies(held, kept))
    folded = again.mapInArrow(partial(fold, held={}), PACKED)
    return rows.where(F.col("part") != HELD).union(folded).union(copies)


def _copies(held: DataFrame, kept: DataFrame) -> DataFrame:
    """(federation, records_twice): how many copies were left out."""
    one = F.lit(1).cast("long")
    both = held.select("federation", one.alias("n")).union(kept.select("federation", -one))
    return both.groupBy("federation").agg(F.sum("n").alias("records_twice"))


def save(packed: DataFrame, folder: str) -> None:
    """Write PACKED rows as Parquet, apart by part."""
    packed.write.mode("overwrite").partitionBy("part").parquet(folder)


def load(spark: SparkSession, folder: str) -> DataFrame:
    """What ``save`` wrote there."""
    return spark.read.schema(PACKED).parquet(folder).select(*PACKED.fieldNames())


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
