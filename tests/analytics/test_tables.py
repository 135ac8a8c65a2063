"""Tables on disk, of which a new version shares files with the former, without Spark."""

import asyncio
import threading
import time

import pyarrow as pa
import pyarrow.parquet as pq
from federator_analytics.dashboard import app
from federator_analytics.digest import tables as digest
from federator_analytics.digest.tables import held_version, part_files, read_tables, version_of
from federator_analytics.jobs import tables
from federator_analytics.jobs.tables import (
    VERSIONS,
    Windows,
    append,
    append_windows,
    collect_tables,
    save,
    write,
)
from federator_analytics.schemas.reports import REPORT_TABLES

from tests.analytics.example_tables import example, write_tables


def rows(*values):
    return pa.table({"x": pa.array(values, pa.int64())})


def test_rows_are_added_to_the_last_file_and_finished_files_stay_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "GROWN_ROWS_MAX", 3)
    save(rows(1, 2), str(tmp_path / "1"))

    for version, new in enumerate([rows(3), rows(4), rows(), rows(5, 6), rows(7)], 2):
        append(new, part_files(tmp_path / str(version - 1)), str(tmp_path / str(version)))

    files = part_files(tmp_path / "6")
    assert [pq.read_table(file)["x"].to_pylist() for file in files] == [[1, 2, 3], [4, 5, 6], [7]]
    assert pq.read_table(tmp_path / "3")["x"].to_pylist() == [1, 2, 3, 4]
    assert files[0].samefile(part_files(tmp_path / "2")[0])


def windows(*values):
    """(window, x) of each."""
    told = [{"window_start": window, "x": x} for window, x in values]
    kinds = {"window_start": pa.timestamp("us", "UTC"), "x": pa.int64()}
    return pa.Table.from_pylist(told, pa.schema(kinds.items()))


def test_windows_that_move_are_in_the_last_file_and_late_ones_are_replaced_in_any(tmp_path):
    save(windows((1, 10), (2, 20)), str(tmp_path / "0"))
    steps = [
        (windows((2, 21), (3, 30)), Windows({2, 3}, {2, 3}, ())),
        (windows((3, 31), (4, 40)), Windows({3, 4}, {3, 4}, ())),
        (windows((4, 41)), Windows({4}, {3, 4}, ())),
        (windows((1, 11)), Windows({1}, {4, 1}, {1})),
    ]

    found = []
    for number, (rows, told) in enumerate(steps, 1):
        before = part_files(tmp_path / str(number - 1))
        append_windows(rows, told, before, str(tmp_path / str(number)))
        files = part_files(tmp_path / str(number))
        found.append([pq.read_table(file)["x"].to_pylist() for file in files])

    assert found == [
        [[10], [21, 30]],
        [[10, 21], [31, 40]],
        [[10, 21], [31, 41]],
        [[21, 31], [41, 11]],
    ]
    assert part_files(tmp_path / "2")[0].samefile(part_files(tmp_path / "3")[0])


def test_a_table_that_is_kept_is_the_same_file_in_the_new_version(tmp_path, spark):
    def by(table, path):
        save(table.toArrow(), path)

    def made(value):
        return lambda: spark.createDataFrame(rows(value))

    write(spark, {"events": made(1), "span": made(1)}, str(tmp_path), by)
    write(spark, {"span": made(2)}, str(tmp_path), by, kept=["events"])

    kept, first = (tmp_path / home / "events" / "part-000000.parquet"
                   for home in (".", "_versions/1"))  # fmt: skip
    assert kept.samefile(first)
    assert (tmp_path / "events").resolve() == tmp_path / "_versions" / "2" / "events"
    assert pq.read_table(tmp_path / "span")["x"].to_pylist() == [2]


def next_version(folder):
    """What a refresh does that finds nothing new."""
    write(None, {}, str(folder), save, kept=list(REPORT_TABLES))


def test_a_version_that_is_read_stays_until_it_was_read(tmp_path):
    write_tables(tmp_path / VERSIONS / "1", example())
    next_version(tmp_path)

    with held_version(tmp_path) as home:
        for _ in range(3):
            next_version(tmp_path)
        assert version_of(tmp_path).name == "5"
        assert len(read_tables(home)["events"]) == len(example()["events"])
    next_version(tmp_path)

    assert {path.name for path in (tmp_path / VERSIONS).iterdir()} == {"5", "6"}


def test_a_dashboard_reads_tables_that_are_replaced_faster_than_it_reads(tmp_path, monkeypatch):
    write_tables(tmp_path / VERSIONS / "1", example())
    next_version(tmp_path)
    monkeypatch.setattr(app, "ANSWER_S", 0)
    monkeypatch.setattr(app, "LOOK_AGAIN_S", 0)
    ended = threading.Event()

    def refresh():
        while not ended.is_set():
            next_version(tmp_path)

    async def asked():
        live, answers = app.Live(tmp_path, time.time), []
        while len({answer["version"] for answer in answers}) < 4:
            answers.append(await live.answer(""))
            await asyncio.sleep(0.01)
        return answers

    refreshing = threading.Thread(target=refresh)
    refreshing.start()
    try:
        answers = asyncio.run(asyncio.wait_for(asked(), 60))
    finally:
        ended.set()
        refreshing.join()

    assert {answer["trouble"] for answer in answers if answer["version"] != "0"} == {""}
    first = answers[0]
    assert (first["version"], first["trouble"]) == ("0", "the tables are being read")


def test_below_a_url_the_same_rows_of_a_long_table_are_read_as_on_a_disk(
    tmp_path, spark, monkeypatch
):
    write_tables(tmp_path, example())
    monkeypatch.setattr(digest, "ROWS_MAX", 20)

    below, there = read_tables(tmp_path), collect_tables(spark, tmp_path.as_uri())

    assert {"events", "delay_over_time", "loss"} < below.cut.keys()
    assert there.cut == below.cut
    for name in ("events", "delay_over_time", "brokers", "span"):
        assert sorted(map(str, there[name])) == sorted(map(str, below[name]))
