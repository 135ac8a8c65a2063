"""Each record once, however often it was read: from a spool and its landing, or replayed.

(broker, spool, batch, row) identifies a record. A row's bit in a word of 62 says that it was seen,
so one mark stands for up to 62 records, marks of two readings join by OR, and a mark that counts
more records than it has bits has duplicates. Only the records of such marks are sorted out one by
one.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from analytics.schemas.fields import struct
from analytics.schemas.records import IDENTITY

WORD_BITS = 62
MARK_KEYS = ("broker", "spool", "batch", "word")
MARKS = struct("broker long", "spool string", "batch long", "word long", "bits long")


def _word() -> Column:
    return F.floor(F.col("row") / WORD_BITS)


def _bit() -> Column:
    return F.call_function(
        "shiftleft", F.lit(1).cast("long"), (F.col("row") % WORD_BITS).cast("int")
    )


def marks(records: DataFrame) -> DataFrame:
    """MARKS of the records, and ``records``: how many each counts."""
    return (
        records.select(*IDENTITY[:3], _word().alias("word"), _bit().alias("bit"))
        .groupBy(*MARK_KEYS)
        .agg(F.bit_or("bit").alias("bits"), F.count(F.lit(1)).alias("records"))
    )


def merged(seen: DataFrame) -> DataFrame:
    """MARKS of several readings as one."""
    return seen.groupBy(*MARK_KEYS).agg(F.bit_or("bits").alias("bits"))


def doubled(marked: DataFrame) -> DataFrame:
    """The keys of ``marks`` that hold a record twice."""
    return marked.where(F.bit_count("bits") < F.col("records")).select(*MARK_KEYS)


def single(records: DataFrame, doubles: DataFrame) -> DataFrame:
    """The records of all other marks. ``doubles``: ``doubled`` of their marks, a small table."""
    keyed = records.withColumn("word", _word())
    return keyed.join(F.broadcast(doubles), list(MARK_KEYS), "left_anti").select(*records.columns)


def once(records: DataFrame, doubles: DataFrame) -> DataFrame:
    """The records of these marks, each once."""
    keyed = records.withColumn("word", _word())
    held = keyed.join(F.broadcast(doubles), list(MARK_KEYS), "left_semi")
    return held.dropDuplicates(list(IDENTITY)).select(*records.columns)


def unseen(records: DataFrame, seen: DataFrame) -> DataFrame:
    """The records that ``seen`` (MARKS, one row a key) has no bit for."""
    keyed = records.withColumn("word", _word())
    told = keyed.join(seen, list(MARK_KEYS), "left")
    new = F.coalesce(F.col("bits").bitwiseAND(_bit()) == 0, F.lit(True))
    return told.where(new).drop("word", "bits")
