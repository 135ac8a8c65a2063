"""What is shown as now is the newest of tables of any length, against what was planted there."""

from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from federator_analytics.dashboard.app import fragments
from federator_analytics.dashboard.past import past_of_broker
from federator_analytics.digest.figures import summarise
from federator_analytics.digest.tables import ROWS_MAX, read_tables
from federator_analytics.jobs.tables import as_written
from federator_analytics.report.page import page

from tests.analytics.example_tables import START, write_tables

BROKERS = 16
PAIRS = [(a, b) for a in range(1, BROKERS + 1) for b in range(1, BROKERS + 1) if a != b]
LINKS = [(a, a % BROKERS + 1) for a in range(1, BROKERS + 1)]
DEAD_SINCE, CUT, DEAD = 7, (1, 2), 12
SLOW_WINDOWS = 6


def in_files(folder, name, columns, *, shuffled):
    """A table as a stream writes it, or in the order of nothing, as a batch report may."""
    size = len(columns["window_start"])
    kinds = as_written(name)
    made = pa.table({key: columns.get(key, pa.nulls(size)) for key in kinds.names}).cast(kinds)
    if shuffled:
        made = made.take(pa.array(np.random.default_rng(1).permutation(size)))
    (folder / name / "part-0.parquet").unlink()
    step = size if shuffled else 100_000
    for number, start in enumerate(range(0, size, step)):
        pq.write_table(made.slice(start, step), folder / name / f"part-{number:06d}.parquet")


def instants(seconds):
    first_us = int(START.timestamp() * 1_000_000)
    return pa.array(first_us + (np.asarray(seconds) * 1_000_000).astype(np.int64)).cast(
        pa.timestamp("us", "UTC")
    )


def plant(folder, rows, *, shuffled):
    """Tables of about ``rows`` delays and events.

    Broker 7 dies after a third and the link between 1 and 2 goes down; broker 12 says at the end
    that its broker died. In the last minute, all ways are 50 times slower.
    """
    windows = rows // len(PAIRS)
    end_s = windows * 10
    window = np.repeat(np.arange(windows), len(PAIRS))
    p50 = np.where(window >= windows - SLOW_WINDOWS, 250_000, 5_000)
    delays = {
        "window_start": instants(window * 10.0),
        "origin": np.tile([a for a, _ in PAIRS], windows),
        "destination": np.tile([b for _, b in PAIRS], windows),
        "strategy": pa.array(["mesh"] * len(window)),
        "publications": np.full(len(window), 100),
        "delay_us_p50": p50, "delay_us_p95": p50 * 2, "delay_us_p99": p50 * 3,
        "quality": pa.array(["ok"] * len(window)),
    }  # fmt: skip
    none = ("bytes_ab", "bytes_ba", "publications_ab", "publications_ba", "duplicates")
    links = [
        {"a": min(link), "b": max(link), "up_share": 0.9, "queue_bytes_max": 0}
        | dict.fromkeys(none, 0)
        for link in LINKS
    ]
    last = START + timedelta(seconds=end_s)
    span = {"federation": "plant", "first": START, "last": last, "records": 1, "brokers": BROKERS}
    span |= {"restarts": 0, "dropped_batches": 0, "duplicates_removed": 0}
    overall = {"scope": "all", "publications": rows, "quality": "ok"}
    write_tables(folder, {"links": links, "span": [span], "delay": [overall]})
    in_files(folder, "delay_over_time", delays, shuffled=shuffled)
    told = [(end_s / 3, 6, "link_down", 7), (end_s / 3, 8, "link_down", 7)]
    told += [(end_s / 3, a, "link_down", b) for a, b in (CUT, CUT[::-1])]
    told += [(end_s - 5, DEAD, "broker_down", None)]
    routine = np.linspace(0, end_s - 6, rows)
    tellers = np.array([b for b in range(1, BROKERS + 1) if b != DEAD_SINCE])
    at_s = np.concatenate([routine, [at for at, *_ in told]])
    order = pa.array(np.argsort(at_s, kind="stable"))
    events = {
        "window_start": instants(at_s),
        "broker": np.append(tellers[np.arange(rows) % len(tellers)], [b for _, b, *_ in told]),
        "kind": pa.array(["parent_changed"] * rows + [kind for *_, kind, _ in told]),
        "neighbour": pa.array([None] * rows + [other for *_, other in told], pa.int64()),
    }  # fmt: skip
    in_files(folder, "events", pa.table(events).take(order).to_pydict(), shuffled=shuffled)


@pytest.mark.parametrize(
    ("rows", "shuffled"),
    [
        (100_000, True),
        (1_000_000, False),
        pytest.param(1_000_000, True, marks=pytest.mark.full),
    ],
)
def test_the_newest_of_tables_of_any_length_is_shown_as_now(tmp_path, rows, shuffled):
    plant(tmp_path, rows, shuffled=shuffled)

    tables = read_tables(tmp_path)

    summary = summarise(tables)
    assert summary["load"]["dead"] == [DEAD_SINCE, DEAD]
    assert summary["load"]["links_down"] == [list(CUT)]
    tiles = fragments(tables, summary)["tiles"]
    assert "14 of 16" in tiles
    assert "down: 7, 12" in tiles
    assert "250 ms" in tiles
    report = page(tables, summary, made_at=START)
    past = past_of_broker(tables, 1, 1)
    assert past["series"]["delay_ms_p99"][-4:] == [15.0, 750.0, 750.0, 750.0]  # of 20 s each
    assert past_of_broker(tables, DEAD, 1)["events"][0]["text"] == "broker down"
    whole = tables["delay_over_time"]
    assert len(whole) % len(PAIRS) == 0  # of no window a part of the pairs
    if rows <= ROWS_MAX:
        assert not tables.cut
        assert past["whole_since_ms"] is None
        return
    assert tables.cut.keys() == {"delay_over_time", "events"}
    assert ROWS_MAX - len(PAIRS) < len(whole) <= ROWS_MAX
    since = min(row["window_start"] for row in whole)
    assert tables.cut["delay_over_time"] == since
    shown = f"of delay_over_time what is of {since:%Y-%m-%d %H:%M:%S} UTC or later"
    assert shown in report
    assert f"Whole from {since:%Y-%m-%d %H:%M:%S} UTC on" in report
    last_whole = max(tables.cut.values())
    assert past["whole_since_ms"] == round(last_whole.timestamp() * 1_000)
