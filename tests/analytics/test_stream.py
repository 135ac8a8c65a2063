"""The stream's tables equal the batch report's, whatever comes late or twice."""

import shutil

import pytest

from analytics.jobs import report, stream
from analytics.schemas import REPORT_TABLES
from analytics.sources.landing import stream_lines
from tests.analytics.landing import example, land

pytestmark = pytest.mark.timeout(3_600)  # hundreds of small Spark jobs, on shared cores


def tables(spark, folder):
    return {
        name: sorted(map(repr, spark.read.parquet(str(folder / name)).collect()))
        for name in REPORT_TABLES
    }


@pytest.mark.slow
def test_late_and_doubled_and_damaged_lines_give_the_tables_of_the_batch_report(spark, tmp_path):
    landing, out = tmp_path / "in", tmp_path / "stream"
    late = land(tmp_path / "late", example(seconds=25, clocks_us={3: 3_600_000_000}))
    first, *_, last = (path.relative_to(tmp_path / "late") for path in late)
    shutil.copytree(tmp_path / "late", landing)
    (landing / first).unlink()

    def follow():
        lines = stream_lines(spark, str(landing), files_per_trigger=4)
        stream.run(spark, lines, str(out), once=True)

    follow()
    shutil.copy(tmp_path / "late" / first, landing / first)
    again = (landing / last).read_text()
    (landing / "again.jsonl").write_text(again + again[: len(again) // 2])
    follow()

    report.run(spark, [str(landing)], str(tmp_path / "batch"))
    streamed, batch = tables(spark, out), tables(spark, tmp_path / "batch")
    assert streamed == batch
    assert f"duplicates_removed={again.count(chr(10))}" not in batch["span"][0]
    assert "duplicates_removed=0" not in batch["span"][0]
    assert "verdict='corrected'" in batch["clocks"][0]
    assert "reason='truncated'" in batch["quarantine"][0]
