"""Quantiles of weighted whole numbers, exactly.

The q-quantile is the smallest value whose cumulative weight is at least q times the total weight.
Percents are whole, so ``100 * cumulative >= percent * total`` is decided in integers.
"""

from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

STEP_BITS = 10
"""``grouped_quantiles`` counts in steps of 2 ** 10: of microseconds, about a millisecond."""

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


def grouped_quantiles(
    rows: DataFrame,
    *,
    members: Sequence[str],
    groups: Callable[[DataFrame], DataFrame],
    keys: Sequence[str],
    value: str,
    weight: str,
    percents: dict[str, int],
) -> DataFrame:
    """The quantiles of groups that overlap: a row counts in each group of its member.

    To sort every row once per group is what costs. So rows are first counted in steps of their
    value, per member, and only these few counts are spread over the groups. They tell in which step
    each quantile lies and what weighs less; only the rows of such steps are sorted.

    Args:
        rows: Of ``members``, value and weight.
        members: Columns that say which groups a row is in; none is NULL.
        groups: From rows of ``members``, ``_member``, ``_step`` and ``_weight`` to rows of ``keys``
            and the last three, one for each group of the member.
        keys: Columns that name a group. NULL is a key as any other.
        value: Column of whole numbers.
        weight: Column of whole numbers above 0.
        percents: Name of the column to its quantile in percent.
    """
    stepped = rows.withColumn("_step", F.shiftright(value, STEP_BITS))
    counted = stepped.groupBy(*members, "_step").agg(F.sum(weight).alias("_weight"))
    spread = groups(counted.withColumn("_member", F.struct(*members))).select(
        F.struct(*keys).alias("_group"), "_member", "_step", "_weight"
    )
    sought = spread.join(_steps_sought(spread, percents), ["_group", "_step"])
    near = stepped.join(
        F.broadcast(sought.select("_group", "_member.*", "_step", "_before", "_total")),
        [*members, "_step"],
    )
    step = ("_group", "_total", "_step", "_before")
    held = near.groupBy(*step, F.col(value).alias("_value")).agg(F.sum(weight).alias("_weight"))
    below = Window.partitionBy(*step).orderBy("_value").rowsBetween(*_UP_TO_HERE)
    ranked = held.withColumn("_so_far", F.col("_before") + F.sum("_weight").over(below))
    return ranked.groupBy("_group").agg(*_picked(percents)).select("_group.*", *percents)


def _steps_sought(spread: DataFrame, percents: dict[str, int]) -> DataFrame:
    """(_group, _step, _before, _total): the steps that hold a quantile."""
    held = spread.groupBy("_group", "_step").agg(F.sum("_weight").alias("_weight"))
    group = Window.partitionBy("_group")
    ranked = held.select(
        "_group",
        "_step",
        "_weight",
        (F.sum("_weight").over(group.orderBy("_step")) - F.col("_weight")).alias("_before"),
        F.sum("_weight").over(group).alias("_total"),
    )
    holds = F.lit(False)
    for percent in percents.values():
        least = F.col("_total") * percent
        after = (F.col("_before") + F.col("_weight")) * 100
        holds |= (F.col("_before") * 100 < least) & (after >= least)
    return ranked.where(holds).drop("_weight")


def _picked(percents: dict[str, int]) -> list[Column]:
    """Of each percent: the least value up to which enough weighs."""
    return [
        F.min(F.when(F.col("_so_far") * 100 >= F.col("_total") * percent, F.col("_value"))).alias(
            name
        )
        for name, percent in percents.items()
    ]
