"""Quantiles of weighted whole numbers, exactly.

The q-quantile is the smallest value whose cumulative weight is at least q times the total weight.
Percents are whole, so ``100 * cumulative >= percent * total`` is decided in integers.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

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
