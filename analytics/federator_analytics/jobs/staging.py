"""The input as partial aggregates, each record once; where they lie until they are merged, and how
many partitions a report's queries get: as many as these are worth.

Spark hands blocks of lines to Python workers and keeps what they fold them into, in chunks
(``transforms.chunks``). Then the marks among it tell which batches hold a record twice
(``sources.duplicates``). The chunks that have such batches are left out and their files read again:
the records of these batches alone go through Spark, which keeps one of each, and are folded after
the others. So lines that are there once, nearly all, are read once.

A shuffle costs a task per partition, and a query of several stages a job per stage, whatever they
hold. Below ``BYTES_PER_PARTITION`` of staged partial aggregates a report is planned for one
partition: they are gathered in one, and from there on grouping, joining and sorting need no
shuffle, so each table is one job of one task.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from urllib.parse import unquote, urlsplit

from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from federator_analytics.schemas.fields import here, struct
from federator_analytics.sources.duplicates import doubles, once
from federator_analytics.sources.landing import literal, read_lines
from federator_analytics.sources.lines import BLOCKS
from federator_analytics.transforms.chunks import CHUNKS, FILE, FILES, fold_in_chunks
from federator_analytics.transforms.folding import HELD, HELD_RECORDS, Held
from federator_analytics.transforms.partials import BESIDE, COUNTED, PACKED, pack, unpack

BYTES_PER_PARTITION = 4 * 2**20
"""Bytes of partial aggregates as they are staged: of a million records, and later of two."""
_SHUFFLES = "spark.sql.shuffle.partitions"
_SMALL = {
    "spark.sql.autoBroadcastJoinThreshold": "-1",  # a broadcast is a job of its own
    "spark.sql.adaptive.enabled": "false",  # so is each stage, with a plan of its own
    "spark.sql.maxSinglePartitionBytes": str(2**60),  # of a join, Spark guesses the product of both
}
"""Settings that make Spark plan for one partition."""
_INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings without compilation: for few records and once, it takes longer than to run the query."""


def partitions_for(files: DataFrame, but: str | None = None) -> int:
    """The number of partitions that these files are worth: at most what the session is set to.

    ``files`` is a table as it is read from files; those in folders named ``but`` count nothing.
    """
    urls = [url for url in files.inputFiles() if but is None or f"/{but}/" not in url]
    size = _bytes(files.sparkSession, urls)
    return max(1, min(_count(files.sparkSession), -(-size // BYTES_PER_PARTITION)))


def _bytes(spark: SparkSession, urls: list[str]) -> int:
    places = [urlsplit(url) for url in urls]
    if all(place.scheme == "file" for place in places):
        return sum(os.stat(unquote(place.path)).st_size for place in places)
    told = spark.read.format("binaryFile").load(urls).agg(F.sum("length")).first()
    return int(told[0] or 0) if told is not None else 0


@contextmanager
def planned_for(
    files: DataFrame, but: str | None = None, *, compiled: bool = True
) -> Iterator[None]:
    """Plan queries inside for what ``files`` hold.

    If ``compiled``, it makes Java of queries even if the records are few: like ones will come.
    """
    spark, count = files.sparkSession, partitions_for(files, but)
    chosen = {_SHUFFLES: str(count)}
    if count == 1:
        chosen |= _SMALL if compiled else _SMALL | _INTERPRETED
    before = {key: str(spark.conf.get(key)) for key in chosen}
    for key, value in chosen.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)


def small_session(spark: SparkSession, *, compiled: bool) -> SparkSession:
    """A session of its own that plans for one partition of few rows. It shares all else.

    ``compiled`` is as of ``planned_for``: Java that was made of a query is kept for the next.
    """
    session = spark.newSession()
    how = _SMALL if compiled else _SMALL | _INTERPRETED
    for key, value in ({_SHUFFLES: "1"} | how).items():
        session.conf.set(key, value)
    return session


def gathered(table: DataFrame) -> DataFrame:
    """The same rows, known to be in one partition where one is what is planned for."""
    return table.coalesce(1) if _count(table.sparkSession) == 1 else table


def as_one_file(table: DataFrame) -> DataFrame:
    """The same rows in one partition, computed in as many as are planned for."""
    return gathered(table) if _count(table.sparkSession) == 1 else table.repartition(1)


def _count(spark: SparkSession) -> int:
    return int(str(spark.conf.get(_SHUFFLES)))


JOBS_AT_ONCE = 4
"""Spark jobs side by side: small ones do not fill the cores alone."""


def settle(spark: SparkSession, inputs: Sequence[str], folder: str) -> DataFrame:
    """CHUNKS of each record below ``inputs`` once, not merged.

    Args:
        inputs: As of ``read_lines``.
        folder: Where it is kept while it is used; replaced.

    Raises ``InputMissingError``: an input is not there.
    """
    first = _folded(read_lines(spark, inputs), {}, f"{folder}/first")
    marks = unpack(first, "marks", COUNTED, "chunk")
    twice = doubles(marks)
    if not twice:
        return first
    chunks = _holding(twice, marks)
    doubtful = F.col("chunk").isin(chunks)
    files = unpack(first.where(doubtful), FILES, FILE).collect()
    again = _folded(
        read_lines(spark, [literal(row.file) for row in files]), twice, f"{folder}/again"
    )
    held = unpack(again, HELD, HELD_RECORDS)
    save(pack(HELD, HELD_RECORDS, once(held)), f"{folder}/once")
    kept = unpack(load(spark, f"{folder}/once", PACKED), HELD, HELD_RECORDS)
    lines = kept.select(
        F.col("raw").cast("binary").alias("content"),
        F.lit(None).cast("string").alias("file"),
        F.lit(None).cast("long").alias("line"),
    ).select(*BLOCKS.fieldNames())
    save(pack("duplicates", BESIDE["duplicates"], _copies(held, kept)), f"{folder}/copies")
    copies = load(spark, f"{folder}/copies")
    sound = first.where(~doubtful).union(again.where(F.col("part") != HELD))
    return sound.union(_folded(lines, {}, f"{folder}/apart")).union(copies)


def _folded(blocks: DataFrame, held: Held, folder: str) -> DataFrame:
    save(blocks.mapInArrow(partial(fold_in_chunks, held=held), CHUNKS), folder)
    return load(blocks.sparkSession, folder)


def _holding(batches: Held, marks: DataFrame) -> list[str]:
    """The chunks with records of these batches."""
    told = [(spool, number) for spool, numbers in batches.items() for number in numbers]
    named = here(marks.sparkSession, told, struct("spool string", "batch long"))
    found = marks.join(F.broadcast(named), ["spool", "batch"]).select("chunk").distinct().collect()
    return [row.chunk for row in found]


def _copies(held: DataFrame, kept: DataFrame) -> DataFrame:
    """(federation, records_twice): how many copies were left out."""
    one = F.lit(1).cast("long")
    both = held.select("federation", one.alias("n")).union(kept.select("federation", -one))
    return both.groupBy("federation").agg(F.sum("n").alias("records_twice"))


def folder_of(part: str) -> str:
    """The name of the folder in which ``save`` keeps a part's files."""
    return f"part={part}"


def save(packed: DataFrame, folder: str) -> None:
    """Write rows of CHUNKS or PACKED as Parquet, apart by part."""
    packed.write.mode("overwrite").partitionBy("part").parquet(folder)


def load(spark: SparkSession, folder: str, schema: StructType = CHUNKS) -> DataFrame:
    """What ``save`` wrote there; columns that it had not are NULL."""
    return spark.read.schema(schema).parquet(folder).select(*schema.fieldNames())


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
