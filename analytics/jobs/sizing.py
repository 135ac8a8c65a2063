"""How many partitions a report's queries get: as many as its input is worth.

A shuffle costs a task per partition, and a query of several stages a job per stage, whatever they
hold. Below ``BYTES_PER_PARTITION`` of staged partial aggregates a report is planned for one
partition: they are gathered in one, and from there on grouping, joining and sorting need no
shuffle, so each table is one job of one task.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote, urlsplit

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

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
