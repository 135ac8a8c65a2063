"""The placement paper's sweeps as a Spark job: one table for ``federator-lab paper place``.

    python -m lab.papers.placement.spark_sweeps --out figures.csv
    spark-submit --master ... lab/papers/placement/spark_sweeps.py --out hdfs:///figures

On a cluster the workers need the extra planner; points are spread one per task at most.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import astuple
from typing import get_type_hints

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lab.papers.figures import Row
from lab.papers.placement.sweeps import Point, points, rows

_TYPES = {str: T.StringType(), int: T.IntegerType(), float: T.DoubleType()}


def _schema(row: type) -> T.StructType:
    """The fields of ``row``, none of which is ever null."""
    each = get_type_hints(row).items()
    return T.StructType([T.StructField(name, _TYPES[kind], nullable=False) for name, kind in each])


SWEEP_POINTS = _schema(Point)  # one row per computation: one value of a swept parameter, one seed

FIGURE_VALUES = _schema(Row)
"""One row per figure, series, x and seed: the one table from which every figure is drawn."""

POINTS_PER_TASK = 4


def figure_values(points: DataFrame) -> DataFrame:
    """SWEEP_POINTS to FIGURE_VALUES. Each point is simulated by the planner's pure functions."""
    compute = F.udf(_compute, T.ArrayType(FIGURE_VALUES), useArrow=False)  # Arrow would need pandas
    return points.select(F.inline(compute("sweep", "x", "seed", "scale"))).select(
        "figure", "series", "x", "seed", "value"
    )


def _compute(sweep: str, x: float, seed: int, scale: float) -> list[Row]:
    return rows(Point(sweep, x, seed, scale))


def point_table(session: SparkSession, chosen: Sequence[Point]) -> DataFrame:
    """SWEEP_POINTS, spread over tasks."""
    told = [astuple(point) for point in chosen]
    tasks = max(1, len(told) // POINTS_PER_TASK)
    return session.createDataFrame(told, SWEEP_POINTS).repartition(tasks)


def main(arguments: Sequence[str] | None = None) -> None:
    """Compute every point and write FIGURE_VALUES as CSV with a header."""
    parser = argparse.ArgumentParser(prog="placement_sweeps", description=__doc__)
    parser.add_argument("--out", required=True, help="folder for the table, replaced")
    parser.add_argument("--master", help="Spark's; by default what spark-submit or Spark says")
    parser.add_argument("--delegation-seeds", type=int, default=20)
    parser.add_argument("--placement-seeds", type=int, default=100)
    parser.add_argument("--scale", type=float, default=1.0, help="of the paper's sizes")
    told = parser.parse_args(arguments)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers take any python3
    builder = SparkSession.builder.appName("placement sweeps")
    if told.master is not None:
        builder = builder.master(told.master)
    session = builder.getOrCreate()
    seeds = {"delegation_seeds": told.delegation_seeds, "placement_seeds": told.placement_seeds}
    chosen = list(points(**seeds, scale=told.scale))
    table = figure_values(point_table(session, chosen))
    table.repartition(1).write.mode("overwrite").csv(told.out, header=True)
    session.stop()


if __name__ == "__main__":
    main()
