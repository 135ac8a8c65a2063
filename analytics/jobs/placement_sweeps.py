"""The placement paper's sweeps as a Spark job: one CSV table that ``federator place paper`` draws.

    python -m analytics.jobs.placement_sweeps --out figures.csv
    spark-submit --master ... analytics/jobs/placement_sweeps.py --out hdfs:///figures

On a cluster the workers need federator[planner]; points are spread one per task at most.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from analytics.schemas import SWEEP_POINTS
from analytics.transforms.sweeps import figure_values
from federator.planner.paper_sweeps import Point, points

POINTS_PER_TASK = 4


def point_table(session: SparkSession, chosen: Sequence[Point]) -> DataFrame:
    """SWEEP_POINTS, spread over tasks."""
    told = [(point.sweep, point.x, point.seed, point.scale) for point in chosen]
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
    chosen = list(
        points(
            delegation_seeds=told.delegation_seeds,
            placement_seeds=told.placement_seeds,
            scale=told.scale,
        )
    )
    table = figure_values(point_table(session, chosen))
    table.repartition(1).write.mode("overwrite").csv(told.out, header=True)
    session.stop()


if __name__ == "__main__":
    main()
