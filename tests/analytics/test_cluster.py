"""The report on a real cluster: the same tables as on a laptop, value by value."""

import os
import subprocess
import sys

import pytest

from analytics.jobs.report import run
from analytics.schemas import REPORT_TABLES
from tests.analytics.cluster import cluster
from tests.analytics.landing import example, land

REPORT_S = 280


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("cluster")) as url:
        yield url


def submit(master, *verb):
    options = ["--executor-memory", "512m", "--driver-memory", "1g"]
    options += ["--conf", "spark.sql.shuffle.partitions=2"]
    return subprocess.run(
        [sys.executable, "-m", "analytics", "submit", "--master", master, *options, "--", *verb],
        capture_output=True,
        text=True,
        timeout=REPORT_S,
        check=False,
        env=dict(os.environ),
    )


def rows(spark, folder, name):
    return sorted(
        (tuple(row) for row in spark.read.parquet(str(folder / name)).collect()), key=repr
    )


def test_the_report_on_a_cluster_equals_the_report_of_a_laptop(spark, master, tmp_path):
    landing = tmp_path / "landing"
    land(landing, example(seconds=25))
    (landing / "bad.jsonl").write_text("no record\n")

    told = submit(master, "report", str(landing), "--out", str(tmp_path / "cluster"))
    run(spark, [str(landing)], str(tmp_path / "laptop"))

    assert told.returncode == 0, told.stderr[-3000:]
    for name in REPORT_TABLES:
        here, there = (rows(spark, tmp_path / place, name) for place in ("laptop", "cluster"))
        assert there == here, name
    assert len(rows(spark, tmp_path / "cluster", "quarantine")) == 1


def test_the_exit_code_of_the_verb_is_that_of_submit(master, tmp_path):
    told = submit(master, "report", str(tmp_path / "nowhere"), "--out", str(tmp_path / "out"))

    assert told.returncode == 66
    assert "federator-analytics: " in told.stderr
    assert "nowhere" in told.stderr
