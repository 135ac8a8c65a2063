"""All partial aggregates as one table of numbered columns, so that one aggregation makes them all.

To Spark a query is a plan, a compilation and some jobs, whatever it holds; twenty small aggregates
cost twenty of each, which is most of what a micro-batch takes. Here a row says in ``part`` of which
partial it is; its keys stand in as many numbered columns as the partial has keys, and so do its
sums, its least and its greatest. Rows of one partial never meet those of another.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from analytics.schemas.fields import struct
from analytics.transforms.partials import Partial

TEXTS = frozenset(
    ("federation", "spool", "strategy", "filter", "kind", "direction", "detail")  # of records
) | {"file", "reason", "raw"}
"""Keys that are strings; all others are whole numbers."""


def arrow_type(name: str) -> pa.DataType:
    """The Arrow type of a column of a partial, by its name."""
    return pa.string() if name in TEXTS else pa.int64()


_SLOTS = {"n": 6, "t": 4, "sum": 7, "least": 3, "greatest": 6, "bits": 1}
"""Columns of each use: as many as any partial needs."""
_NAMES = {use: tuple(f"{use}{i}" for i in range(count)) for use, count in _SLOTS.items()}
_ALL_KEYS = ("part", *_NAMES["n"], *_NAMES["t"])
PACKED = struct(
    *(
        f"{name} {'string' if use == 't' else 'long'}?"
        for use, names in _NAMES.items()
        for name in names
    ),
    "part string",
)
"""``part`` is last: files are kept by it."""
_ARROW = pa.schema(
    [
        (field.name, pa.string() if field.dataType == StringType() else pa.int64())
        for field in PACKED.fields
    ]
)


def as_packed(part: str, how: Partial, rows: pa.Table) -> pa.Table:
    """PACKED of rows in memory that have the partial's columns."""
    slots = dict(_slots(how))
    told = []
    for field in _ARROW:
        if field.name == "part":
            told.append(pa.repeat(part, len(rows)))
        elif field.name in slots:
            told.append(rows[slots[field.name]])
        else:
            told.append(pa.nulls(len(rows), field.type))
    return pa.table(told, schema=_ARROW)


def pack(part: str, how: Partial, rows: DataFrame) -> DataFrame:
    """PACKED of rows that have the partial's columns, merged or not."""
    slots = dict(_slots(how))
    told: list[Column] = []
    for field in PACKED.fields[:-1]:
        value = F.col(slots[field.name]) if field.name in slots else F.lit(None)
        told.append(value.cast(field.dataType).alias(field.name))
    return rows.select(*told, F.lit(part).alias("part"))


def unpack(packed: DataFrame, part: str, how: Partial, *more: str) -> DataFrame:
    """One partial, by the names of its own columns, and ``more`` columns as they are named."""
    names = slots_of(how)
    rows = packed.where(F.col("part") == part)
    return rows.select(*(F.col(names[name]).alias(name) for name in how.columns), *more)


def slots_of(how: Partial) -> dict[str, str]:
    """Each column of the partial to its numbered one."""
    return {name: slot for slot, name in _slots(how)}


def merged(packed: DataFrame) -> DataFrame:
    """One row per part and key."""
    return (
        packed.groupBy(*_ALL_KEYS)
        .agg(
            *(F.sum(name).alias(name) for name in _NAMES["sum"]),
            *(F.min(name).alias(name) for name in _NAMES["least"]),
            *(F.max(name).alias(name) for name in _NAMES["greatest"]),
            *(F.bit_or(name).alias(name) for name in _NAMES["bits"]),
        )
        .select(*PACKED.fieldNames())
    )


def _slots(how: Partial) -> Iterator[tuple[str, str]]:
    """(numbered column, column of the partial)."""
    uses = [("t" if key in TEXTS else "n", key) for key in how.keys]
    uses += [("sum", name) for name in how.sums]
    uses += [("least", name) for name in how.least]
    uses += [("greatest", name) for name in how.greatest]
    uses += [("bits", name) for name in how.bits]
    taken = dict.fromkeys(_NAMES, 0)
    for use, name in uses:
        assert taken[use] < _SLOTS[use], f"{name}: more columns of use {use} are wanted"
        yield _NAMES[use][taken[use]], name
        taken[use] += 1
