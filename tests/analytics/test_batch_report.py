"""The batch report of the example, whole and damaged, in one session."""

import pytest

from analytics.jobs.report import run
from analytics.schemas import REPORT_TABLES
from tests.analytics.landing import example, land

pytestmark = pytest.mark.timeout(900)  # some hundred small Spark jobs, on cores that are shared


def rows(table):
    """A table's rows as plain tuples, in an order of their own."""
    return sorted((tuple(row) for row in table.collect()), key=repr)


def all_rows(spark, folder):
    return {name: rows(spark.read.parquet(str(folder / name))) for name in REPORT_TABLES}


def test_the_example_gives_the_figures_that_its_making_says(spark, tmp_path):
    land(tmp_path / "in", example(seconds=25))

    run(spark, [str(tmp_path / "in")], str(tmp_path / "out"))

    tables = all_rows(spark, tmp_path / "out")
    pair = next(row for row in tables["delay"] if row[:3] == ("pair", 1, 3))
    delays = sorted(5_000 + 37 * s + 150 * i * i for s in range(1, 26) for i in range(4))
    assert pair[6] == 100
    assert pair[7] == pytest.approx(delays[49], rel=0.01)
    assert pair[8] == pytest.approx(delays[94], rel=0.01)
    assert pair[10:13] == (sum(delays) / 100, delays[0], delays[-1])
    assert pair[13:] == (5_000, 0, "ok")
    hops = {row[2]: row[3:7] for row in tables["hop_times"]}
    assert hops == {1: (1, 2, 25, 2_313), 2: (2, 3, 25, 3_226)}
    assert tables["loss"][0] == ("a/#", 1, 3, 1, 100, 100, 0, 0, "complete")
    over = next(row for row in tables["overhead"] if row[0] is None)
    assert over[2:8] == (3, 2, 25, 100, 4.0, 4)
    assert tables["quarantine"] == []
    assert {row[0]: row[3] for row in tables["convergence"]} == {
        "agent_started": 0,
        "link_down": 2_000_000,
    }
    assert not (tmp_path / "out" / "_staging").exists()
