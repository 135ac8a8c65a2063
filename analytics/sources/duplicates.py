"""Each record once, however often it was read: from a spool and its landing, or replayed.

(broker, spool, batch, row) identifies a record. A row's bit in a word of 62 says that it was seen,
so one mark stands for up to 62 records, marks of two readings join by OR, and a mark that counts
more records than it has bits has duplicates. So a first look at a set of blocks reads nothing of
their lines but this identity; the batches in which it, or what was read before, holds a record
twice are passed on unfolded, and their records told apart one by one.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from analytics.schemas.fields import struct
from analytics.schemas.records import IDENTITY
from analytics.sources.lines import identities

WORD_BITS = 62
MARK_KEYS = ("broker", "spool", "batch", "word")
COUNTED_MARKS = struct(
    "broker long", "spool string", "batch long", "word long", "bits long", "records long"
)
"""``records``: how many each counts."""


def mark(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """COUNTED_MARKS of BLOCKS, good lines and bad, not merged: what ``mapInArrow`` runs."""
    for batch in batches:
        for content, file in zip(batch.column("content"), batch.column("file"), strict=True):
            columns = list(zip(*identities(content.as_py(), file.as_py()), strict=True))
            if columns:
                kinds = [pa.string() if name == "spool" else pa.int64() for name in IDENTITY]
                arrays = map(pa.array, columns, kinds)
                yield from marked(pa.table(dict(zip(IDENTITY, arrays, strict=True)))).to_batches()


def marked(records: pa.Table) -> pa.Table:
    """COUNTED_MARKS of a table that has IDENTITY's columns; one row a key."""
    spool = records["spool"].combine_chunks().dictionary_encode()
    row = records["row"].to_numpy()
    columns = [
        records["broker"].to_numpy(),
        spool.indices.to_numpy(),
        records["batch"].to_numpy(),
        row // WORD_BITS,
    ]
    order = np.lexsort(columns[::-1])
    keys = [column[order] for column in columns]
    new = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    first = np.flatnonzero(np.append(True, new)[: len(row)])
    bits = np.left_shift(np.int64(1), row % WORD_BITS)[order]
    told = [pa.array(key[first]) for key in keys]
    told[1] = spool.dictionary.take(told[1])
    told.append(pa.array(np.bitwise_or.reduceat(bits, first)))
    told.append(pa.array(np.diff(np.append(first, len(row)))))
    return pa.table(told, names=COUNTED_MARKS.fieldNames())


def doubles(counted: DataFrame, seen: DataFrame | None) -> dict[str, frozenset[int]]:
    """Spool to the batches of it that hold a record twice, or one that was seen before.

    Args:
        counted: COUNTED_MARKS of what is read now.
        seen: The partial ``marks`` of what was read before, not merged.
    """
    new = counted.groupBy(*MARK_KEYS).agg(
        F.bit_or("bits").alias("bits"), F.sum("records").alias("records")
    )
    if seen is None:
        twice = new.where(F.bit_count("bits") < F.col("records"))
    else:
        both = new.join(_merged(seen), list(MARK_KEYS), "left")
        known = F.coalesce(F.col("seen_bits"), F.lit(0))
        again = F.col("bits").bitwiseAND(known) != 0
        twice = both.where((F.bit_count("bits") < F.col("records")) | again)
    found: dict[str, set[int]] = {}
    for spool, batch in twice.select("spool", "batch").distinct().collect():
        found.setdefault(spool, set()).add(batch)
    return {spool: frozenset(batches) for spool, batches in found.items()}


def once(records: DataFrame, seen: DataFrame | None) -> DataFrame:
    """Each record once, and none that ``seen`` (as above) has. IDENTITY are among its columns."""
    kept = records.dropDuplicates(list(IDENTITY))
    if seen is None:
        return kept
    told = kept.withColumn("word", F.floor(F.col("row") / WORD_BITS))
    bit = F.call_function(
        "shiftleft", F.lit(1).cast("long"), (F.col("row") % WORD_BITS).cast("int")
    )
    known = F.coalesce(F.col("seen_bits"), F.lit(0))
    both = told.join(_merged(seen), list(MARK_KEYS), "left")
    return both.where(known.bitwiseAND(bit) == 0).select(*records.columns)


def _merged(seen: DataFrame) -> DataFrame:
    return seen.groupBy(*MARK_KEYS).agg(F.bit_or("bits").alias("seen_bits"))
