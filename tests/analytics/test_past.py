"""What the dashboard tells of one broker or topic, and that a console understands it."""

import asyncio
import http.client
import json
from collections import defaultdict
from datetime import timedelta
from urllib.parse import urlsplit

import pytest
from federator_analytics.dashboard.past import EVENTS_MAX, FLOWS_MAX, past_of_broker, past_of_topic
from federator_analytics.digest.tables import Tables, read_tables

from federator.console.dashboard import Dashboard
from tests.analytics.chromium import served
from tests.analytics.example_tables import HOSTILE, START, example, write_tables


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    write_tables(folder, example())
    return folder


@pytest.fixture(scope="module")
def tables(folder):
    return read_tables(folder)


def of_one(**columns):
    rows = {
        "span": [{"last": START + timedelta(hours=2)}],
        "delay_over_time": [], "events": [], "brokers": [], "loss": [], "traffic_matrix": [],
    }  # fmt: skip
    return Tables(rows | columns)


def window(minutes, origin, destination, publications, p99, quality="ok"):
    return {
        "window_start": START + timedelta(minutes=minutes), "origin": origin,
        "destination": destination, "publications": publications, "delay_us_p99": p99,
        "quality": quality,
    }  # fmt: skip


def test_windows_of_a_broker_are_rates_by_direction_and_its_slowest_delay():
    rows = [
        window(0, 1, 2, 40, 3_000),
        window(0, 1, 3, 20, 9_000),
        window(10, 3, 1, 60, 1_000),
        window(10, 2, 1, 60, 90_000, "flagged"),
        window(10, 2, 3, 999, 500_000),
    ]
    told = past_of_broker(of_one(delay_over_time=rows), 1, 1)

    def known(name):
        points = told["series"][name]
        assert len(points) == 3_600_000 // told["step_ms"]
        return {n - len(points): value for n, value in enumerate(points) if value is not None}

    step_s = told["step_ms"] / 1_000
    before = -1 - int(600 / step_s)
    assert known("sent") == {before: 60 / step_s}
    assert known("received") == {-1: 120 / step_s}
    assert known("delay_ms_p99") == {before: 9.0, -1: 1.0}


def test_every_publication_of_the_example_is_in_one_point(tables):
    sent = defaultdict(float)
    for row in tables["delay_over_time"]:
        sent[row["origin"]] += row["publications"]
    assert sent

    for broker, publications in sent.items():
        told = past_of_broker(tables, broker, 6)
        total = sum(value or 0 for value in told["series"]["sent"]) * told["step_ms"] / 1_000
        assert total == pytest.approx(publications)


def test_events_are_the_newest_and_routine_pushes_none_out():
    def event(n, kind):
        return {
            "window_start": START + timedelta(seconds=n), "broker": 1, "kind": kind,
            "neighbour": 2, "subject": None, "filter": "a/#", "detail": None,
        }  # fmt: skip

    rows = [event(0, "link_down"), *(event(n, "parent_changed") for n in range(1, 3_000))]
    told = past_of_broker(of_one(events=rows), 1, 6)["events"]

    assert len(told) == EVENTS_MAX
    assert told[-1]["text"] == "link down (neighbour 2, a/#)"
    assert [each["at_ms"] for each in told] == sorted((e["at_ms"] for e in told), reverse=True)
    assert past_of_broker(of_one(events=rows), 9, 6)["events"] == []
    assert past_of_broker(of_one(events=rows), 1, 1)["events"] == []


def test_a_topic_has_the_ways_of_every_filter_that_takes_it():
    def way(filter_, n=1):
        return {
            "filter": filter_, "origin": n, "destination": 2, "publications": n, "bytes": 1,
            "rate_per_s": 0.5,
        }  # fmt: skip

    rows = [way("a/+", 7), way("a/b", 3), way("$share/g/a/#", 1), way("b/#", 9)]
    lost = [{"filter": "a/b", "origin": 3, "destination": 2, "missing": 4}]
    told = past_of_topic(of_one(traffic_matrix=rows, loss=lost), "a/b", 1)

    assert [(each["filter"], each["missing"]) for each in told["flows"]] == [
        ("a/+", 0), ("a/b", 4), ("$share/g/a/#", 0),
    ]  # fmt: skip
    many = past_of_topic(of_one(traffic_matrix=[way("a/b", n) for n in range(1_000)]), "a/b", 1)
    assert (len(many["flows"]), many["flows_total"]) == (FLOWS_MAX, 1_000)
    long = past_of_topic(of_one(traffic_matrix=[way("a" * 65_000)]), "a" * 65_000, 1)
    assert len(long["flows"][0]["filter"]) < 1_000


def test_a_console_understands_what_the_real_dashboard_answers(folder, tables):
    async def asked(url):
        dashboard = Dashboard(url)
        return [
            await dashboard.past(broker="1", hours="1"),
            await dashboard.past(topic=HOSTILE, hours="24"),
            await dashboard.past(broker="99", hours="6"),
        ]

    with served(folder) as (url, _):
        broker, topic, nobody = asyncio.run(asked(url))
        wrong = [
            status(url, path)
            for path in (
                "/history", "/history?broker=x", "/history?broker=1&topic=a", "/history?topic=",
                "/history?broker=1&hours=5", f"/history?topic={'x' * 2_000}",
                f"/history?broker={'9' * 40}",
            )
        ]  # fmt: skip
        foreign = status(url, "/history?broker=1", Host="evil.example")

    assert any(broker["series"]["sent"])
    assert broker["facts"]["restarts"] == next(
        row["restarts"] for row in tables["brokers"] if row["broker"] == 1
    )
    assert topic["flows"]
    assert {each["filter"] for each in topic["flows"]} == {HOSTILE}
    assert not any(nobody["series"]["sent"])
    assert wrong == [400] * 7
    assert foreign == 400


def status(url, path, **headers):
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    if answer.status == 400 and not headers:
        assert json.loads(body)["error"]
    return answer.status
