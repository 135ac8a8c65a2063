"""The stream's tables equal the batch report's, whatever comes late, twice, or is killed."""

import asyncio
import os
import shutil
import signal

import pytest
from federator_analytics.jobs import folded, report, stream
from federator_analytics.jobs import tables as on_disk
from federator_analytics.jobs.tables import as_written
from federator_analytics.schemas.reports import REPORT_TABLES
from federator_analytics.sources.landing import read_lines, stream_lines

from tests.analytics.landing import LINE, START_US, example, land, record, reported, text, typed
from tests.analytics.stream_check import newest, start
from tests.real.polling import until

PATIENCE_S = 600
HOP: LINE = {"origin": 9, "origin_epoch": 1, "seq": 1, "custody": 1, "qos": 1, "hop": 0}
HOP |= {"origin_time_us": START_US, "sender": None}
pytestmark = pytest.mark.timeout(3_600)  # hundreds of small Spark jobs, on shared cores


def tables(spark, folder):
    return {
        name: sorted(map(repr, spark.read.parquet(str(folder / name)).collect()))
        for name in REPORT_TABLES
    }


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


@pytest.mark.full
def test_tables_made_again_after_each_micro_batch_are_those_of_all(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(folded, "WINDOWS_HELD", 1)
    monkeypatch.setattr(on_disk, "GROWN_ROWS_MAX", 5)
    late = example(seconds=25, clocks_us={3: 3_600_000_000})[1]
    told = example(seconds=25)
    pieces = [
        text(told[1] + told[2]),
        text(told[3][:40]) + "no record\n",
        text(told[3][40:]),
        "no record\nno record\n",
        text(late[:90]),
        text(record("hops", 9, batch=1, row=0, **HOP) for _ in range(2)),
    ]
    fold = stream.Fold(spark, tmp_path / "stream", compiled=False)
    landing = tmp_path / "in"
    landing.mkdir()
    assert fold.refresh()  # as a stream that begins before there are records

    for batch, piece in enumerate(pieces):
        path = landing / f"{batch}.jsonl"
        path.write_text(piece)
        fold(read_lines(spark, [str(path)]), batch)
        assert fold.refresh()
        if batch % 2:
            report.run(spark, [str(landing)], str(tmp_path / "batch"))
            assert reported(tmp_path / "stream") == reported(tmp_path / "batch")
            assert typed(tmp_path / "stream") == typed(tmp_path / "batch")


@pytest.mark.full
def test_five_kills_of_the_streaming_job_leave_the_tables_of_the_batch_report(spark, tmp_path):
    landing, out = tmp_path / "in", tmp_path / "stream"
    *early, one, other = land(tmp_path / "all", example(seconds=25), batches_per_file=9)
    landing.mkdir()
    for path in early:
        shutil.copy(path, landing)
    parts = out / "_stream" / "parts"
    moments = [
        lambda: (out / "_stream" / "checkpoint" / "offsets" / "0").exists(),
        lambda: any(path.name.startswith(".") for path in parts.glob(".*")),
        lambda: newest(parts) > before,
        lambda: (out / "_versions").exists() and newest(parts) > before,
        lambda: any(path.name.startswith(".") for path in parts.glob(".*")),
    ]
    folded = []

    for moment in moments:
        if moment is moments[-1]:  # what came before may all be folded by now
            shutil.copy(one, landing)
            shutil.copy(other, landing)
        for half in parts.glob(".*"):
            shutil.rmtree(half)
        before = newest(parts)
        job = start(landing, out, "--files-per-trigger", "1", "--refresh-s", "1", cores=1)
        reached(moment, job)
        assert job.poll() is None, "the job ended by itself"
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        folded.append(newest(parts))
    last = start(landing, out, "--files-per-trigger", "2", "--once", cores=1)
    try:
        assert last.wait(PATIENCE_S) == 0
    finally:
        last.kill()

    assert folded[-1] >= 1, "no kill came between micro-batches"
    report.run(spark, [str(landing)], str(tmp_path / "batch"))
    assert reported(out) == reported(tmp_path / "batch")
    assert typed(out) == typed(tmp_path / "batch")
    assert typed(out) == {name: {as_written(name)} for name in REPORT_TABLES}


def reached(moment, job):
    """Wait for the moment, or for the job's end."""
    either = until(lambda: moment() or job.poll() is not None, "moment", deadline_s=PATIENCE_S)
    asyncio.run(either)
