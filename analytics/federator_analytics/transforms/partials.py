"""Partial aggregates: what the report needs to know of any set of records, small, and mergeable.

Each is a table of keys and measures with one way to add rows: sums, least and greatest. So the
partials of two sets of records merge into the partials of both, in any order, and a late record is
as good as one in time. ``transforms.folding`` makes them, of a block of records at a time; batch
and stream merge them. All measures are whole numbers, so merging in another order changes nothing.

All of them fit into one table of numbered columns (PACKED), so that one aggregation makes them all:
to Spark a query is a plan, a compilation and some jobs, whatever it holds; twenty small aggregates
cost twenty of each, which is most of what a micro-batch takes. There a row says in ``part`` of
which partial it is; its keys stand in as many numbered columns as the partial has keys, and so do
its sums, its least and its greatest. Rows of one partial never meet those of another.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from federator_analytics.schemas.fields import struct
from federator_analytics.schemas.records import TABLES

HIGH_BITS = 32
"""Sums of delays are kept in two: hours between clocks overflow 64 bits at 10^9 publications."""

WIDE = "delays"
"""The partial of which hardly any two rows have a key in common: it is not worth merging."""


@dataclass(frozen=True, slots=True)
class Partial:
    """How one partial aggregate is merged: its keys, and of each measure how it adds up.

    Columns are keys of records, or what ``transforms.folding`` makes of them.
    """

    keys: tuple[str, ...]
    sums: tuple[str, ...] = ()
    least: tuple[str, ...] = ()
    greatest: tuple[str, ...] = ()
    bits: tuple[str, ...] = ()

    def merged(self, rows: DataFrame) -> DataFrame:
        """One row per key, of any number of partials put together."""
        ways = (_WAYS[use](name).alias(name) for use, name in self.measures)
        return rows.groupBy(*self.keys).agg(*ways).select(*self.columns)

    @property
    def columns(self) -> tuple[str, ...]:
        """Keys, then measures."""
        return (*self.keys, *(name for _, name in self.measures))

    @property
    def measures(self) -> list[tuple[str, str]]:
        """Each measure, behind how it adds up: a key of ``_WAYS``."""
        each = zip(_WAYS, (self.sums, self.least, self.greatest, self.bits), strict=True)
        return [(use, name) for use, names in each for name in names]


_WAYS = {"sum": F.sum, "least": F.min, "greatest": F.max, "bits": F.bit_or}
_FLOW = ("origin", "destination", "hops", "qos", "strategy")
_SPAN: dict[str, tuple[str, ...]] = {"least": ("first_us",), "greatest": ("last_us",)}

_ROW_BY_ROW: dict[str, Partial] = {
    "deliveries": Partial(
        (*_FLOW, "redundancy"),
        sums=(
            *("publications", "bytes", "frames", "out_of_order", "repaired"),
            *("sum_us_high", "sum_us_low"),
        ),
        least=("min_us",),
        greatest=("max_us",),
    ),
    "pair_windows": Partial(("window_us", "origin", "destination"), least=("min_us",)),
    "offered": Partial(
        ("filter", "origin", "qos", "strategy", "made_us"), sums=("publications", "bytes")
    ),
    "arrived": Partial(
        ("filter", "origin", "destination", "qos", "strategy", "made_us"),
        sums=("publications", "bytes"),
    ),
    "wants": Partial(("filter", "broker", "epoch", "since_us"), greatest=("until_us",)),
    "links": Partial(
        ("broker", "neighbour"),
        sums=(
            *("windows", "up", "publications_out", "bytes_out"),
            *("duplicates", "duplicate_publications", "dropped"),
            *("room_bytes", "bytes_out_of_room"),
        ),
        least=("round_trip_us",),
        greatest=("queue_bytes", "capacity"),
    ),
    "flows": Partial(
        ("broker", "flow"), sums=("bytes", "window_ms", "planned_ms"), greatest=("rate",)
    ),
    "round_trips": Partial(("broker", "neighbour", "round_trip_us"), sums=("windows",)),
    "control": Partial(("broker", "neighbour", "kind", "direction"), sums=("messages", "bytes")),
    "announcements": Partial(("broker",), sums=("announcements",)),
    "agents": Partial(
        ("broker",),
        sums=(
            *("publications_in", "publications_out", "delivered", "no_route", "dropped"),
            *("cpu_us", "window_ms"),
        ),
        greatest=(
            *("clients", "filters", "rss_bytes", "send_queue_bytes"),
            *("custody_bytes", "loop_lag_us"),
        ),
    ),
    "names": Partial(("broker", "name"), greatest=("last_us",)),
    "events": Partial(
        (
            *("federation", "at_us", "broker", "kind", "neighbour"),
            *("filter", "subject", "detail", "value"),
        ),
        sums=("one",),
    ),
    "hops": Partial(
        ("origin", "origin_epoch", "seq", "custody", "receiver"), least=("hop", "sender", "at_us")
    ),
}
_MADE_OF = {"pair_windows": "deliveries", "round_trips": "links", "names": "agents"}
"""The table of records that these are made of; each other one is of the table of its name."""

OF_TABLE = {
    table: {name: how for name, how in _ROW_BY_ROW.items() if _MADE_OF.get(name, name) == table}
    for table in TABLES
}
"""Partials by the table of records that they are made of, row by row."""

SEEN = Partial(("federation", "broker", "epoch"), sums=("records",), **_SPAN)
"""``agents_seen``, of all records."""
DELAYS = Partial(("window_us", *_FLOW, "value_us"), sums=("publications",))
"""A row for each bucket of a delivery's histogram."""
CLIENTS = Partial(("origin", "destination", "value_us"), sums=("publications",))
"""A row for each delay that a test client measured."""

PARTIALS: dict[str, Partial] = {
    **_ROW_BY_ROW,
    WIDE: DELAYS,
    "clients": CLIENTS,
    "agents_seen": SEEN,
}
"""What report tables are made of."""

COUNTED = Partial(("broker", "spool", "batch", "word"), sums=("records",), bits=("bits",))
"""``marks``, and how many records each counts, before any was told apart."""

BESIDE: dict[str, Partial] = {
    "marks": Partial(COUNTED.keys, bits=COUNTED.bits),
    "quarantine": Partial(("file", "line", "reason", "raw"), sums=("one",)),
    "duplicates": Partial(("federation",), sums=("records_twice",)),
}
"""Partials beside them: which records were folded, bad lines, and how many copies were left out."""


TEXTS = frozenset(
    ("federation", "spool", "strategy", "filter", "flow", "kind", "direction", "detail", "name")
) | {"file", "reason", "raw"}
"""Keys that are strings; all others are whole numbers."""


def arrow_type(name: str) -> pa.DataType:
    """The Arrow type of a column of a partial, by its name."""
    return pa.string() if name in TEXTS else pa.int64()


_SLOTS = {"n": 6, "t": 4, "sum": 9, "least": 3, "greatest": 6, "bits": 1}
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


def merged_parts(packed: DataFrame) -> DataFrame:
    """One row per part and key."""
    return (
        packed.groupBy(*_ALL_KEYS)
        .agg(*(way(name).alias(name) for use, way in _WAYS.items() for name in _NAMES[use]))
        .select(*PACKED.fieldNames())
    )


def _slots(how: Partial) -> Iterator[tuple[str, str]]:
    """(numbered column, column of the partial)."""
    uses = [("t" if key in TEXTS else "n", key) for key in how.keys]
    taken = dict.fromkeys(_NAMES, 0)
    for use, name in uses + how.measures:
        assert taken[use] < _SLOTS[use], f"{name}: more columns of use {use} are wanted"
        yield _NAMES[use][taken[use]], name
        taken[use] += 1
