"""Partial aggregates: what the report needs to know of any set of records, small, and mergeable.

Each is a table of keys and measures with one way to add rows: sums, least and greatest. So the
partials of two sets of records merge into the partials of both, in any order, and a late record is
as good as one in time. ``transforms.folding`` makes them, of a block of records at a time; batch
and stream merge them. All measures are whole numbers, so merging in another order changes nothing.
"""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

HIGH_BITS = 32
"""Of sums of delays, summed apart: hours between clocks overflow 64 bits at 10^9 publications."""

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
        return rows.groupBy(*self.keys).agg(*self._measures()).select(*self.columns)

    @property
    def columns(self) -> tuple[str, ...]:
        """Keys, then measures."""
        return self.keys + self.sums + self.least + self.greatest + self.bits

    def _measures(self) -> list[Column]:
        return [
            *(F.sum(name).alias(name) for name in self.sums),
            *(F.min(name).alias(name) for name in self.least),
            *(F.max(name).alias(name) for name in self.greatest),
            *(F.bit_or(name).alias(name) for name in self.bits),
        ]


_FLOW = ("origin", "destination", "hops", "qos", "strategy")
_SPAN_LEAST, _SPAN_GREATEST = ("first_us",), ("last_us",)

OF_TABLE: dict[str, dict[str, Partial]] = {
    "deliveries": {
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
    },
    "offered": {
        "offered": Partial(
            ("filter", "origin", "qos", "strategy"),
            sums=("publications", "bytes"),
            least=_SPAN_LEAST,
            greatest=_SPAN_GREATEST,
        ),
    },
    "arrived": {
        "arrived": Partial(
            ("filter", "origin", "destination", "qos", "strategy"),
            sums=("publications", "bytes"),
            least=_SPAN_LEAST,
            greatest=_SPAN_GREATEST,
        ),
    },
    "links": {
        "links": Partial(
            ("broker", "neighbour"),
            sums=(
                *("windows", "up", "publications_out", "bytes_out"),
                *("duplicates", "duplicate_publications", "dropped"),
            ),
            least=("round_trip_us",),
            greatest=("queue_bytes",),
        ),
        "round_trips": Partial(("broker", "neighbour", "round_trip_us"), sums=("windows",)),
    },
    "control": {
        "control": Partial(
            ("broker", "neighbour", "kind", "direction"), sums=("messages", "bytes")
        ),
    },
    "announcements": {"announcements": Partial(("broker",), sums=("announcements",))},
    "agents": {
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
    },
    "events": {
        "events": Partial(
            (
                *("federation", "at_us", "broker", "kind", "neighbour"),
                *("filter", "subject", "detail", "value"),
            ),
            sums=("one",),
        ),
    },
    "hops": {
        "hops": Partial(
            ("origin", "origin_epoch", "seq", "custody", "receiver"),
            least=("hop", "sender", "at_us"),
        ),
    },
    "clients": {},
}
"""By the table of records that they are made of, row by row."""

SEEN = Partial(
    ("federation", "broker", "epoch"),
    sums=("records",),
    least=_SPAN_LEAST,
    greatest=_SPAN_GREATEST,
)
"""``agents_seen``, of all records."""
DELAYS = Partial(("window_us", *_FLOW, "value_us"), sums=("publications",))
"""A row for each bucket of a delivery's histogram."""
CLIENTS = Partial(("origin", "destination", "value_us"), sums=("publications",))
"""A row for each delay that a test client measured."""

PARTIALS: dict[str, Partial] = {
    **{name: how for of_table in OF_TABLE.values() for name, how in of_table.items()},
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
"""Beside them: which records were folded, bad lines, and how many copies were left out."""
