"""The placement paper's sweeps: from points to the table of figures, and to its curves."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType

from analytics.schemas import FIGURE_VALUES
from federator.planner.paper_sweeps import Point, Row, rows


def figure_values(points: DataFrame) -> DataFrame:
    """SWEEP_POINTS to FIGURE_VALUES. Each point is simulated by the planner's pure functions."""
    compute = F.udf(_compute, ArrayType(FIGURE_VALUES), useArrow=False)  # Arrow would need pandas
    return points.select(F.inline(compute("sweep", "x", "seed", "scale"))).select(
        "figure", "series", "x", "seed", "value"
    )


def figure_curves(values: DataFrame) -> DataFrame:
    """FIGURE_VALUES to FIGURE_CURVES."""
    return (
        values.groupBy("figure", "series", "x")
        .agg(
            F.count(F.lit(1)).alias("seeds"),
            F.mean("value").alias("mean"),
            F.stddev_samp("value").alias("deviation"),
        )
        .select("figure", "series", "x", "seeds", "mean", "deviation")
    )


def _compute(sweep: str, x: float, seed: int, scale: float) -> list[Row]:
    return rows(Point(sweep, x, seed, scale))
