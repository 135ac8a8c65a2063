"""Frame events added up: rows say what the events said, whatever their order and number."""

from collections import Counter
from random import Random

import pytest

from federator.protocol.effects import FilterRoute
from federator.protocol.forwarding.forwarding import Forwarder
from federator.protocol.parameters import Parameters, Strategy
from federator.protocol.telemetry.frame_events import (
    Came,
    Delivered,
    FrameEventBuffer,
    Made,
    Refused,
    Sent,
)
from federator.protocol.telemetry.records import (
    Arrived,
    Deliveries,
    Hops,
    Offered,
    is_sampled,
    salt_of,
)
from federator.runtime.telemetry import window_aggregator as sums_module
from federator.runtime.telemetry.window_aggregator import WindowAggregator

FILTERS = ("a/b", "a/+", "x/#")


def forwarder():
    made = Forwarder()
    for filter_ in FILTERS:
        made.set_route(filter_, FilterRoute(local=filter_ != "x/#", wanted=True, next_hops=(2,)))
    return made


def window_of(lines, *, sample=10):
    routes = forwarder()
    window = WindowAggregator(
        self_id=1,
        forwarder=routes,
        parameters=Parameters(redundancy=2, strategies=(("x/#", Strategy.SHORTEST_PATH),)),
        sample=sample,
    )
    for at in range(0, len(lines), 100):
        window.add(lines[at : at + 100])
    return window


def keys(*filters):
    routes = forwarder()
    return b"".join(sorted(routes.key(filter_) for filter_ in filters))


def rows(window, table):
    told = window.rows({"at_us": 5, "window_ms": 1_000})
    return [fields for kind, fields in told if kind is table]


@pytest.mark.parametrize("delays_max", [3, 10_000])
def test_deliveries_are_what_a_slow_count_says(delays_max, monkeypatch):
    monkeypatch.setattr(sums_module, "DELAYS_MAX", delays_max)
    rng = Random(3)
    lines, wanted, late, latest = [], Counter(), Counter(), {}
    for _ in range(500):
        origin, hops, custody = rng.choice((3, 4)), rng.choice((1, 2)), rng.choice((0, 1))
        seq, count = rng.randrange(1_000), rng.randint(1, 9)
        lines.append(
            Delivered(
                origin, hops, custody, keys("a/b"), 7, seq, count, 10, rng.randrange(10**6), 0
            )
        )
        wanted[origin, hops, custody] += count
        late[origin, custody] += count * (seq < latest.get((origin, custody), -1))
        latest[origin, custody] = max(seq, latest.get((origin, custody), -1))

    told = rows(window_of(lines), Deliveries)

    got, frames, order = Counter(), 0, Counter()
    for row in told:
        got[row["origin"], row["hops"], row["qos"]] += row["publications"]
        order[row["origin"], row["qos"]] += row["out_of_order"]
        frames += row["frames"]
        assert sum(count for _, count in row["delay"]) == row["publications"]
    assert got == wanted
    assert frames == 500
    assert +order == +late


def test_traffic_counts_for_each_filter_and_delivery_for_none_but_those_of_our_clients():
    made = [Made(keys("a/b", "x/#"), 0, 7, seq, 2, 100, 9) for seq in range(1, 4)]
    came = [Delivered(3, 1, 1, keys("a/b", "a/+", "x/#"), 7, 1, 4, 50, 10, 25_000_000)]

    window = window_of(made + came)
    told = window.rows({"at_us": 5, "window_ms": 1_000})

    offered = {f["filter"]: (f["publications"], f["strategy"]) for k, f in told if k is Offered}
    arrived = {f["filter"]: (f["origin"], f["qos"], f["bytes"]) for k, f in told if k is Arrived}
    assert offered == {"a/b": (6, "mesh"), "x/#": (6, "shortest-path")}
    assert arrived == {"a/b": (3, 1, 50), "a/+": (3, 1, 50)}
    assert {f["made_us"] for k, f in told if k is Offered} == {0}
    assert {f["made_us"] for k, f in told if k is Arrived} == {20_000_000}
    assert window.rows({"at_us": 6, "window_ms": 1_000}) == []


def test_links_count_copies_duplicates_and_what_was_refused():
    lines = [
        Sent(2, 3, 100, 0, 1, 7, 1),
        Sent(2, 1, 50, 0, 1, 7, 2),
        Refused(2, 5, False, 0, 1, 7, 3),
        Refused(2, 7, True, 1, 1, 7, 4),
        Came(9, 4, 80, False, 0, 3, 7, 1, 2, 1, 2),
        Came(9, 4, 80, True, 0, 3, 7, 1, 2, 1, 2),
    ]

    links = window_of(lines).take_links()

    out, back = links[2], links[9]
    assert (out["frames_out"], out["publications_out"], out["bytes_out"]) == (2, 4, 150)
    assert (out["dropped"], out["deferred"]) == (5, 7)
    assert (back["frames_in"], back["duplicates"], back["duplicate_publications"]) == (2, 1, 4)


def test_every_agent_samples_the_same_frames_once():
    frames = range(1, 1_001)
    origin = window_of([Made(keys("a/b"), 0, 7, seq, 1, 9, 5) for seq in frames])
    relay = window_of(
        [Came(1, 1, 80, again, 0, 1, 7, seq, 1, 5, 6) for seq in frames for again in (False, True)]
    )

    made, came = rows(origin, Hops), rows(relay, Hops)

    assert [row["seq"] for row in made] == [row["seq"] for row in came]
    assert 90 <= len(made) <= 110
    assert {(row["hop"], row["sender"]) for row in made} == {(0, None)}
    assert {(row["hop"], row["sender"], row["origin"]) for row in came} == {(1, 1, 1)}


@pytest.mark.parametrize(("one_in", "step"), [(7, 1), (100, 1), (100, 10), (100, 64), (1, 1)])
def test_one_frame_in_so_many_is_sampled_however_numbers_are_spaced(one_in, step):
    salt = salt_of(12, 1_700_000_000_000)

    taken = sum(is_sampled(salt, seq, one_in) for seq in range(0, 100_000 * step, step))

    assert 0.8 * 100_000 / one_in <= taken <= 1.2 * 100_000 / one_in
    assert not is_sampled(salt, 0, 0)


def test_a_full_tape_is_read_at_once_and_without_a_reader_forgets():
    frame_events, read = FrameEventBuffer(events_max=3), []
    for number in range(4):
        frame_events.add(Sent(number, 1, 1, 0, 1, 7, 1))
    frame_events.on_full = lambda: read.extend(frame_events.take())
    for number in range(4, 9):
        frame_events.add(Sent(number, 1, 1, 0, 1, 7, 1))

    assert [line.neighbour for line in read] == [3, 4, 5, 6, 7, 8]
