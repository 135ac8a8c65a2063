"""Partial aggregates: what the report needs to know of any set of records, small, and mergeable.

Each is a table of keys and measures with one way to add rows: sums, least and greatest. So the
partials of two sets of records merge into the partials of both, in any order, and a late record is
as good as one in time. The batch report makes them once; the stream makes them of every micro-batch
and merges. All measures are whole numbers, so merging in another order changes nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from analytics.schemas.reports import WINDOW_S
from analytics.transforms.sketch import values

HIGH_BITS = 32
"""Of sums of delays, summed apart: hours between clocks overflow 64 bits at 10^9 publications."""

WIDE = "delays"
"""The partial of which hardly any two rows have a key in common: it is not worth merging."""

Pick = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True, slots=True)
class Partial:
    """How one partial aggregate is made of records (RECORD_LINE's columns) and merged."""

    pick: Pick
    keys: tuple[str, ...]
    sums: tuple[str, ...] = ()
    least: tuple[str, ...] = ()
    greatest: tuple[str, ...] = ()
    bits: tuple[str, ...] = ()

    def of(self, records: DataFrame) -> DataFrame:
        """The partial of these records."""
        return self.merged(self.pick(records))

    def merged(self, rows: DataFrame) -> DataFrame:
        """One row per key: of picked rows, or of any number of partials put together."""
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


def _table(name: str, **more: Column) -> Pick:
    """The rows of one table; ``one`` counts them."""

    def pick(records: DataFrame) -> DataFrame:
        return records.where(F.col("table") == name).withColumns({"one": F.lit(1), **more})

    return pick


_WINDOW_US = WINDOW_S * 1_000_000
_LINK_SUMS = ("publications_out", "bytes_out", "duplicates", "duplicate_publications", "dropped")
_FLOW = ("origin", "destination", "hops", "qos", "strategy")


def record_partials() -> dict[str, Partial]:
    """Name to how it is made. A session must be there: columns are its."""
    here = F.col("broker")
    spans = {"first_us": F.col("at_us"), "last_us": F.col("at_us") + F.col("window_ms") * 1_000}
    window = F.col("at_us") - F.col("at_us") % _WINDOW_US
    deliveries = _table(
        "deliveries",
        destination=here,
        sum_us_high=F.shiftright("sum_us", HIGH_BITS),
        sum_us_low=F.col("sum_us").bitwiseAND(F.lit(2**HIGH_BITS - 1)),
    )
    return {
        "deliveries": Partial(
            deliveries,
            (*_FLOW, "redundancy"),
            sums=(
                *("publications", "bytes", "frames", "out_of_order", "repaired"),
                *("sum_us_high", "sum_us_low"),
            ),
            least=("min_us",),
            greatest=("max_us",),
        ),
        "delays": Partial(
            lambda records: values(
                deliveries(records).withColumn("window_us", window), "window_us", *_FLOW
            ),
            ("window_us", *_FLOW, "value_us"),
            sums=("publications",),
        ),
        "pair_windows": Partial(
            _table("deliveries", destination=here, window_us=window),
            ("window_us", "origin", "destination"),
            least=("min_us",),
        ),
        "offered": Partial(
            _table("offered", origin=here, **spans),
            ("filter", "origin", "qos", "strategy"),
            sums=("publications", "bytes"),
            least=("first_us",),
            greatest=("last_us",),
        ),
        "arrived": Partial(
            _table("arrived", destination=here, **spans),
            ("filter", "origin", "destination", "qos", "strategy"),
            sums=("publications", "bytes"),
            least=("first_us",),
            greatest=("last_us",),
        ),
        "links": Partial(
            _table("links", windows=F.lit(1)),
            ("broker", "neighbour"),
            sums=("windows", "up", *_LINK_SUMS),
            least=("round_trip_us",),
            greatest=("queue_bytes",),
        ),
        "round_trips": Partial(
            _table("links", windows=F.lit(1)),
            ("broker", "neighbour", "round_trip_us"),
            sums=("windows",),
        ),
        "control": Partial(
            _table("control"),
            ("broker", "neighbour", "kind", "direction"),
            sums=("messages", "bytes"),
        ),
        "announcements": Partial(_table("announcements"), ("broker",), sums=("announcements",)),
        "agents": Partial(
            _table("agents"),
            ("broker",),
            sums=(
                "publications_in",
                "publications_out",
                "delivered",
                "no_route",
                "dropped",
                "cpu_us",
                "window_ms",
            ),
            greatest=(
                "clients",
                "filters",
                "rss_bytes",
                "send_queue_bytes",
                "custody_bytes",
                "loop_lag_us",
            ),
        ),
        "events": Partial(
            _table("events"),
            (
                "federation",
                "at_us",
                "broker",
                "kind",
                "neighbour",
                "filter",
                "subject",
                "detail",
                "value",
            ),
            sums=("one",),
        ),
        "hops": Partial(
            _table("hops", receiver=here),
            ("origin", "origin_epoch", "seq", "custody", "receiver"),
            least=("hop", "sender", "at_us"),
        ),
        "clients": Partial(
            lambda records: records.where(F.col("table") == "clients").select(
                F.col("publisher_broker").alias("origin"),
                "destination",
                F.explode("delays_us").alias("value_us"),
                F.lit(1).alias("publications"),
            ),
            ("origin", "destination", "value_us"),
            sums=("publications",),
        ),
        "agents_seen": Partial(
            lambda records: records.withColumns({"records": F.lit(1), **spans}),
            ("federation", "broker", "epoch"),
            sums=("records",),
            least=("first_us",),
            greatest=("last_us",),
        ),
    }
