"""Each record once, however often it was read: from a spool and its landing, or replayed.

(broker, spool, batch, row) identifies a record. A row's bit in a word of 62 says that it was seen,
so one mark stands for up to 62 records, marks of two readings join by OR, and a mark that counts
more records than it has bits has duplicates. The report looks at the marks of what it has folded.
So does the stream, of each micro-batch. The batches that hold a record twice, or in the stream may
have been read before, are read again and passed on unfolded, and their records told apart one by
one.
"""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from federator_analytics.schemas.fields import struct
from federator_analytics.schemas.records import IDENTITY

WORD_BITS = 62
MARK_KEYS = ("broker", "spool", "batch", "word")
COUNTED_MARKS = struct(
    "broker long", "spool string", "batch long", "word long", "bits long", "records long"
)
"""``records``: how many each counts."""


def marked(records: pa.Table) -> pa.Table:
    """COUNTED_MARKS of a table that has IDENTITY's columns; one row a key."""
    row = records["row"].to_numpy()
    marks = {name: records[name] for name in MARK_KEYS[:-1]} | {
        "word": pa.array(row // WORD_BITS),
        "bits": pa.array(np.left_shift(np.int64(1), row % WORD_BITS)),
        "records": pa.array(np.ones(len(row), np.int64)),
    }
    return merged_marks(pa.table(marks))


def merged_marks(marks: pa.Table) -> pa.Table:
    """COUNTED_MARKS with one row a key."""
    spool = marks["spool"].combine_chunks().dictionary_encode()
    columns = [marks[name].to_numpy() for name in MARK_KEYS if name != "spool"]
    columns.insert(1, spool.indices.to_numpy())
    order = np.lexsort(columns[::-1])
    keys = [column[order] for column in columns]
    new = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    first = np.flatnonzero(np.append(True, new)[: len(order)])
    told = [pa.array(key[first]) for key in keys]
    told[1] = spool.dictionary.take(told[1])
    for name, way in (("bits", np.bitwise_or), ("records", np.add)):
        values = marks[name].to_numpy()[order]
        told.append(pa.array(way.reduceat(values, first) if len(first) else values))
    return pa.table(told, names=COUNTED_MARKS.fieldNames())


def doubles(counted: DataFrame) -> dict[str, frozenset[int]]:
    """Spool to the batches of it that hold a record twice. ``counted``: COUNTED_MARKS."""
    new = counted.groupBy(*MARK_KEYS).agg(
        F.bit_or("bits").alias("bits"), F.sum("records").alias("records")
    )
    twice = new.where(F.bit_count("bits") < F.col("records"))
    return by_spool(map(tuple, twice.select("spool", "batch").distinct().collect()))


def by_spool(batches: Iterable[tuple[str, int]]) -> dict[str, frozenset[int]]:
    found: dict[str, set[int]] = {}
    for spool, batch in batches:
        found.setdefault(spool, set()).add(batch)
    return {spool: frozenset(numbers) for spool, numbers in found.items()}


def once(records: DataFrame) -> DataFrame:
    """Each record once. IDENTITY are among its columns."""
    return records.dropDuplicates(list(IDENTITY))
