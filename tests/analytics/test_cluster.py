"""The report on a real cluster: the same tables as on a laptop, value by value."""

import sys
from subprocess import PIPE, STDOUT, Popen

import pytest
from federator_analytics.jobs.report import run
from federator_analytics.schemas.reports import REPORT_TABLES

from tests.analytics.cluster import cluster
from tests.analytics.java import options as java_options
from tests.analytics.landing import example, land

REPORT_S = 500

pytestmark = pytest.mark.timeout(600)  # five JVMs on what may be two busy cores


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("cluster")) as url:
        yield url


def submit(master, *verb):
    options = ["--executor-memory", "512m", "--driver-memory", "1g"]
    options += ["--conf", "spark.sql.shuffle.partitions=2"]
    options += ["--conf", f"spark.executor.extraJavaOptions={java_options()} -XX:+UseSerialGC"]
    command = [sys.executable, "-m", "federator_analytics", "submit", "--master", master, *options]
    return Popen([*command, "--", *verb], stdout=PIPE, stderr=STDOUT, text=True)


def rows(spark, folder, name):
    table = spark.read.parquet(str(folder / name))
    return sorted((tuple(row) for row in table.collect()), key=repr)


@pytest.mark.full
def test_the_report_on_a_cluster_equals_the_report_of_a_laptop(spark, master, tmp_path):
    landing = tmp_path / "landing"
    land(landing, example(seconds=25))
    (landing / "bad.jsonl").write_text("no record\n")

    with submit(master, "report", str(landing), "--out", str(tmp_path / "cluster")) as process:
        run(spark, [str(landing)], str(tmp_path / "laptop"))
        told, _ = process.communicate(timeout=REPORT_S)

    assert process.returncode == 0, told[-3000:]
    for name in REPORT_TABLES:
        here, there = (rows(spark, tmp_path / place, name) for place in ("laptop", "cluster"))
        assert there == here, name
    assert len(rows(spark, tmp_path / "cluster", "quarantine")) == 1


def test_the_exit_code_of_submit_is_that_of_the_verb(master, tmp_path):
    missing = str(tmp_path / "nowhere")

    with submit(master, "report", missing, "--out", str(tmp_path / "out")) as process:
        told, _ = process.communicate(timeout=REPORT_S)

    assert process.returncode == 66
    assert "federator-analytics: " in told  # spark-submit has one stream for both
    assert "nowhere" in told
