"""Quantiles of weighted whole numbers, exactly.

The q-quantile is the smallest value whose cumulative weight is at least q times the total weight.
Percents are whole, so ``100 * cumulative >= percent * total`` is decided in integers.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


def weighted_quantiles(
    rows: DataFrame,
    *,
    keys: Sequence[str],
    value: str,
    weight: str,
    percents: dict[str, int],
) -> DataFrame:
    """Rows of keys, value and weight to one row per key with a column for each of ``percents``.

    Args:
        rows: Any number of rows per key and value. NULL is a key as any other.
        keys: May be empty: then all rows are one group.
        value: Column of whole numbers.
        weight: Column of whole numbers above 0.
        percents: Name of the column to its quantile in percent.
    """
    group = Window.partitionBy(*keys)
    so_far = group.orderBy(value).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    ranked = rows.select(
        *keys,
        F.col(value).alias("_value"),
        F.sum(weight).over(so_far).alias("_so_far"),  # of equal values the last one has it all
        F.sum(weight).over(group).alias("_total"),
    )
    return ranked.groupBy(*keys).agg(
        *(
            F.min(
                F.when(F.col("_so_far") * 100 >= F.col("_total") * percent, F.col("_value"))
            ).alias(name)
            for name, percent in percents.items()
        )
    )
