"""Units, liveness and places on a drawing."""

import math
from datetime import UTC, datetime, timedelta

import pytest
from federator_analytics.digest.figures import crashes, summarise
from federator_analytics.digest.liveness import liveness
from federator_analytics.digest.tables import Tables
from federator_analytics.digest.units import bits, count, duration, percent, ratio, size
from federator_analytics.report.topology import SPRINGS_MAX, layout


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (None, "\N{EN DASH}"), (0, "0 \N{MICRO SIGN}s"), (850, "850 \N{MICRO SIGN}s"),
        (999.7, "1.00 ms"), (12_345, "12.3 ms"), (1_240_000, "1.24 s"), (-40_000, "-40 ms"),
        (185_000_000, "3 min 5 s"), (179_999_999, "3 min 0 s"), (7_440_000_000, "2 h 4 min"),
    ],
)  # fmt: skip
def test_a_duration_reads_in_the_unit_that_fits(us, text):
    assert duration(us) == text


def test_counts_are_exact_below_a_million():
    assert [count(n) for n in (0, 999_999, 4_216_000)] == ["0", "999,999", "4.22 M"]
    assert [size(n) for n in (0, 999, 1_000, 1_234_567)] == ["0 B", "999 B", "1 kB", "1.23 MB"]
    assert [ratio(n) for n in (None, 0.0216, 21.64, 2)] == ["\N{EN DASH}", "0.022", "21.6", "2"]


def test_rates_are_of_bits_in_powers_of_a_thousand():
    assert [bits(n) for n in (None, 0, 64_000, 2_000_000)] == [
        "\N{EN DASH}", "0 bit/s", "64 kbit/s", "2 Mbit/s",
    ]  # fmt: skip


def test_a_link_that_carries_nearly_all_it_can_is_a_finding_and_the_fullest_is_named():
    def summary_of(loads):
        links = [
            {"a": a, "b": b, "up_share": 1.0, "bytes_ab": 0, "bytes_ba": 0}
            | {"capacity_ba": 64_000, "load_ba": load}
            for (a, b), load in loads.items()
        ]
        return summarise(Tables({"links": links}), "Report")

    summary = summary_of({(2, 3): 0.96, (1, 2): 0.97})

    assert summary["load"]["fullest_links"][0] == {
        "sender": 2, "receiver": 1, "load": 0.97, "capacity": 64_000,
    }  # fmt: skip
    text = "The link from broker 2 to 1 carried 97 % of the 64 kbit/s that it can."
    assert text in [each["text"] for each in summary["findings"]]
    before = [each["text"] for each in summary_of({(1, 2): 0.9})["findings"]]
    assert not any(" that it can." in each for each in before)


def test_a_share_never_reads_all_or_nothing_unless_it_is():
    assert [percent(share) for share in (0, 1, 1e-9, 0.999_999, 0.5)] == [
        "0 %", "100 %", "< 0.01 %", "> 99.99 %", "50 %",
    ]  # fmt: skip


def event(second, broker, kind, neighbour=None):
    at = datetime(2026, 5, 4, tzinfo=UTC) + timedelta(seconds=second)
    return {"window_start": at, "broker": broker, "kind": kind, "neighbour": neighbour}


def links(*pairs):
    return [{"a": a, "b": b, "up_share": 1.0} for a, b in pairs]


def told(events, pairs):
    brokers = [{"broker": id} for id in sorted({end for pair in pairs for end in pair})]
    return liveness(Tables({"events": events, "links": links(*pairs), "brokers": brokers}))


def test_a_broker_that_every_neighbour_lost_is_dead():
    events = [event(1, 1, "link_down", 3), event(2, 2, "link_down", 3)]

    state = told(events, [(1, 2), (1, 3), (2, 3)])

    assert state.of("down") == [3]
    assert state.cut() == []


def test_a_broker_that_one_neighbour_still_hears_is_alive_and_its_link_is_cut():
    state = told([event(1, 1, "link_down", 3)], [(1, 2), (1, 3), (2, 3)])

    assert state.of("down") == []
    assert state.cut() == [(1, 3)]


def test_a_broker_that_is_cut_off_and_tells_so_is_alive():
    cuts = [event(1, 1, "link_down", 3), event(2, 2, "link_down", 3)]
    its_own = [event(1, 3, "link_down", 1), event(1, 3, "link_down", 2)]
    pairs = [(1, 2), (1, 3), (2, 3)]

    assert told(cuts + its_own, pairs).of("down") == []
    assert told(cuts + its_own[:1], pairs).of("down") == [3]
    assert told([*cuts, event(5, 3, "core_changed")], pairs).of("down") == []


def test_an_agent_that_saw_its_broker_die_is_believed_until_it_says_otherwise():
    down, up = event(1, 2, "broker_down"), event(5, 2, "broker_up")

    assert told([down], [(1, 2)]).of("down") == [2]
    assert told([up, down], [(1, 2)]).of("down") == []


def test_a_link_that_one_end_lost_is_down_until_that_end_has_it_again():
    lost, found = event(1, 1, "link_down", 2), event(3, 1, "link_up", 2)
    others = event(0, 2, "link_up", 1)
    pairs = [(1, 2), (1, 3), (2, 3)]

    assert told([others, lost], pairs).links[1, 2] == "down"
    assert told([others, lost, found], pairs).links[1, 2] == "up"


def test_an_agent_that_was_told_to_stop_is_not_dead_and_its_links_are_not_lost():
    events = [event(10, 2, "agent_stopped"), event(9, 1, "link_down", 2)]

    state = told(events, [(1, 2), (1, 3)])

    assert state.of("stopped") == [2]
    assert state.of("down") == state.cut() == []
    assert state.lost == set()


def test_a_link_that_was_lost_and_came_back_is_up_and_remembered():
    events = [event(1, 1, "link_down", 2), event(2, 1, "link_up", 2)]

    state = told(events, [(1, 2), (1, 3)])

    assert state.links[1, 2] == "up"
    assert state.lost == {(1, 2)}


def test_a_start_without_a_stop_before_it_is_a_crash():
    told_to = [event(1, 1, "agent_started"), event(5, 1, "agent_stopped")]
    again = [event(6, 1, "agent_started"), event(9, 1, "agent_started")]

    assert crashes(Tables({"events": told_to + again[:1]})) == 0
    assert crashes(Tables({"events": told_to + again})) == 1


def ring(n):
    return [(id, id % n + 1) for id in range(1, n + 1)]


@pytest.mark.parametrize("n", [1, 2, 9, SPRINGS_MAX + 10])
def test_every_broker_has_a_place_of_its_own_in_the_unit_square(n):
    places = layout(range(1, n + 1), ring(n) if n > 2 else [])

    assert set(places) == set(range(1, n + 1))
    assert all(-1e-9 <= value <= 1 + 1e-9 for place in places.values() for value in place)
    apart = [math.dist(places[a], places[b]) for a in places for b in places if a < b]
    assert min(apart, default=1) > 0.5 / n


def test_a_ring_is_drawn_as_a_ring_and_the_same_each_time():
    places = layout(range(1, 9), ring(8))

    lengths = [math.dist(places[a], places[b]) for a, b in ring(8)]
    assert max(lengths) < 1.1 * min(lengths)
    assert places == layout(range(1, 9), ring(8))
