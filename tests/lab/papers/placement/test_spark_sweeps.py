import csv
import subprocess
import sys

import pytest
from pyspark.testing import assertDataFrameEqual, assertSchemaEqual

from lab.papers.placement.spark_sweeps import (
    FIGURE_VALUES,
    figure_values,
    point_table,
)
from lab.papers.placement.sweeps import SWEEPS, Point, points, rows


def test_spark_computes_the_rows_that_a_loop_computes(spark):
    chosen = [Point(sweep, values[0], 3, 0.02) for sweep, values in SWEEPS.items()]

    actual = figure_values(point_table(spark, chosen))

    assertSchemaEqual(actual.schema, FIGURE_VALUES)
    expected = [tuple(row) for point in chosen for row in rows(point)]
    assertDataFrameEqual(actual, spark.createDataFrame(expected, FIGURE_VALUES))


@pytest.mark.full
def test_the_job_writes_one_table_with_every_figure(tmp_path):
    options = ["--master", "local[2]", "--delegation-seeds", "1", "--placement-seeds", "1"]
    command = [sys.executable, "-m", "lab.papers.placement.spark_sweeps", *options]
    command += ["--scale", "0.02", "--out", str(tmp_path / "table")]

    run = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)

    assert run.returncode == 0, run.stderr[-2000:]
    (part,) = (tmp_path / "table").glob("part-*.csv")
    with part.open(newline="") as file:
        found = {int(row["figure"]) for row in csv.DictReader(file)}
    assert found == set(range(8, 23))
    chosen = points(delegation_seeds=1, placement_seeds=1)
    assert len(list(chosen)) == sum(map(len, SWEEPS.values()))
