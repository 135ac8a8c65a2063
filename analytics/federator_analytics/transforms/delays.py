"""Delay tables: quantiles of corrected delays, over all, and by pair, hops, strategy and time.

Delays of a pair whose clocks disagree are corrected by the pair's offset. Those of a flagged pair
stand in that pair's own rows as they were measured, and in no row that merges pairs.

The q-quantile of weighted whole numbers is the smallest value whose cumulative weight is at least
q times the total weight. Percents are whole, so ``100 * cumulative >= percent * total`` is decided
in integers.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from federator_analytics.transforms.partials import HIGH_BITS

_UP_TO_HERE = (Window.unboundedPreceding, Window.currentRow)


def weighted_quantiles(
    rows: DataFrame,
    *,
    keys: Sequence[str],
    value: str,
    weight: str,
    percents: dict[str, int],
    total: str | None = None,
    least: str | None = None,
) -> DataFrame:
    """Rows of keys, value and weight to one row per key with a column for each of ``percents``.

    Args:
        rows: Any number of rows per key and value. NULL is a key as any other.
        keys: May be empty: then all rows are one group.
        value: Column of whole numbers.
        weight: Column of whole numbers above 0.
        percents: Name of the column to its quantile in percent.
        total: Name of a further column: what all rows of the key weigh.
        least: Name of a further column: the key's least value.
    """
    group = Window.partitionBy(*keys)
    so_far = group.orderBy(value).rowsBetween(*_UP_TO_HERE)
    ranked = rows.select(
        *keys,
        F.col(value).alias("_value"),
        F.sum(weight).over(so_far).alias("_so_far"),  # of equal values the last one has it all
        F.sum(weight).over(group).alias("_total"),
    )
    whole = [F.first("_total").alias(total)] if total else []
    lowest = [F.min("_value").alias(least)] if least else []
    return ranked.groupBy(*keys).agg(*whole, *_picked(percents), *lowest)


def _picked(percents: dict[str, int]) -> list[Column]:
    """A column for each percent: the least value up to which enough weighs."""
    return [
        F.min(F.when(F.col("_so_far") * 100 >= F.col("_total") * percent, F.col("_value"))).alias(
            name
        )
        for name, percent in percents.items()
    ]


PERCENTS = {"delay_us_p50": 50, "delay_us_p95": 95, "delay_us_p99": 99}
FLOW = ("origin", "destination", "hops", "qos", "strategy")
WAY = ("origin", "destination", "strategy")
SCOPES: dict[str, tuple[str, ...]] = {
    "all": (),
    "pair": ("origin", "destination"),
    "hops": ("hops",),
    "strategy": ("strategy",),
    "pair_hops": FLOW,
}
"""Scope to the columns that are not NULL in its rows."""
MERGING = ("all", "hops", "strategy")
"""Scopes over several pairs."""
_WORST = ("ok", "corrected", "flagged")


def delay(deliveries: DataFrame, quantiles: DataFrame, pairs: DataFrame) -> DataFrame:
    """DELAY from the partial ``deliveries``, the scopes' quantiles and PAIRS."""
    offset_us = F.coalesce("offset_us", F.lit(0))
    totals = _totals(deliveries.join(F.broadcast(pairs), ["origin", "destination"]), offset_us)
    keys = ["scope", *FLOW]
    same = [totals[key].eqNullSafe(quantiles[key]) for key in keys]
    return totals.join(quantiles, same, "left").select(
        totals["*"], *(quantiles[name] for name in PERCENTS)
    )


def _totals(deliveries: DataFrame, offset_us: Column) -> DataFrame:
    """What needs no quantile, per scope."""
    shift = offset_us * F.col("publications")
    rows = deliveries.select(
        *FLOW,
        "publications",
        (_sum_us() - shift).cast("decimal(38,0)").alias("sum_us"),
        (F.col("min_us") - offset_us).alias("min_us"),
        (F.col("max_us") - offset_us).alias("max_us"),
        "floor_us",
        "offset_us",
        "quality",
    )
    scoped = _scoped(rows)
    kept = F.col("kept")
    worst = F.max(F.array_position(F.array(*map(F.lit, _WORST)), F.col("quality")))
    of_pair = F.col("scope").isin("pair", "pair_hops")
    total = F.sum(F.when(kept, F.col("publications")).otherwise(0))
    return scoped.groupBy("scope", *FLOW).agg(
        total.alias("publications"),
        (F.sum(F.when(kept, F.col("sum_us"))).cast("double") / F.nullif(total, F.lit(0))).alias(
            "delay_us_mean"
        ),
        F.min(F.when(kept, F.col("min_us"))).alias("delay_us_min"),
        F.max(F.when(kept, F.col("max_us"))).alias("delay_us_max"),
        F.max(F.when(of_pair, F.col("floor_us"))).alias("floor_us"),
        F.max(F.when(of_pair, F.col("offset_us"))).alias("clock_offset_us"),
        F.element_at(F.array(*map(F.lit, _WORST)), worst.cast("int")).alias("quality"),
    )


def _sum_us() -> Column:
    """The sum of delays, of its two parts."""
    high, low = (F.col(f"sum_us_{part}").cast("decimal(20,0)") for part in ("high", "low"))
    return high * F.lit(2**HIGH_BITS).cast("decimal(10,0)") + low


def _scoped(rows: DataFrame) -> DataFrame:
    """Each row once per scope, with NULL for the keys that the scope is over.

    Where a merging scope must leave a row out, ``kept`` is false.
    """
    scopes = F.array(
        *(
            F.struct(
                F.lit(scope).alias("scope"),
                *((F.col(key) if key in keys else F.lit(None)).alias(key) for key in FLOW),
            )
            for scope, keys in SCOPES.items()
        )
    )
    kept = (F.col("told.quality") != "flagged") | ~F.col("scope").isin(*MERGING)
    values = [name for name in rows.columns if name not in FLOW]
    spread = rows.select(F.struct(*values).alias("told"), F.inline(scopes))
    return spread.select("scope", *FLOW, "told.*", kept.alias("kept"))


def delay_over_time(quantiles: DataFrame, pairs: DataFrame) -> DataFrame:
    """DELAY_OVER_TIME from the windows' quantiles and PAIRS."""
    told = quantiles.join(F.broadcast(pairs), ["origin", "destination"])
    offset_us = F.coalesce("offset_us", F.lit(0))
    return told.select(
        F.timestamp_micros("window_us").alias("window_start"),
        "origin",
        "destination",
        "strategy",
        "publications",
        *((F.col(name) - offset_us).alias(name) for name in PERCENTS),
        "quality",
    )


def client_delays(clients: DataFrame) -> DataFrame:
    """CLIENTS from the partial of this name: exact, for clients told each delay."""
    keys = ("origin", "destination")
    quantiles = weighted_quantiles(
        clients, keys=keys, value="value_us", weight="publications", percents=PERCENTS
    )
    weighted = F.col("value_us").cast("decimal(20,0)") * F.col("publications")
    totals = clients.groupBy(*keys).agg(
        F.sum("publications").alias("publications"),
        (F.sum(weighted).cast("double") / F.sum("publications")).alias("delay_us_mean"),
        F.min("value_us").alias("delay_us_min"),
        F.max("value_us").alias("delay_us_max"),
    )
    return totals.join(quantiles, list(keys))
