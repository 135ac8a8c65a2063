"""What is owed, what is under way and what is lost, held against what clients counted. No Spark."""

import pyarrow as pa
import pytest
from federator_analytics.transforms.clocks import OneWay, pair_facts
from federator_analytics.transforms.folding import merged
from federator_analytics.transforms.loss import (
    COUNTS,
    OF_BOOK,
    book_of,
    counts_of,
    judged,
    wider_than,
)
from federator_analytics.transforms.partials import PARTIALS, arrow_type

from federator.protocol.filters.algebra import contains
from federator.protocol.telemetry.records import MADE_WINDOW_US

SECOND_US = 1_000_000
START_US = 1_790_000_000 * SECOND_US
ORIGIN, NEAR, FAR = 1, 2, 3
RATE = 5


class Federation:
    """Broker 1 publishes ``RATE`` a second under ``filters``; agents tell until ``until_s``."""

    def __init__(self, *, until_s=120, sent_s=None, qos=1, filters=("a",)):
        self.qos, self.until_s = qos, until_s
        self.sent = range(sent_s if sent_s is not None else until_s)
        self.offered = [(f, at, RATE) for at in self.sent for f in filters]
        self.arrived, self.wants, self.events = [], [], []
        self.lives = [(broker, 1, 0, until_s) for broker in (ORIGIN, NEAR, FAR)]
        self.clocks = {}

    def wanted(self, broker, filter_="a", since_s=-60, until_s=None, epoch=1):
        self.wants.append((broker, epoch, filter_, since_s, until_s))

    def came(self, broker, seconds, filter_="a", lost=0):
        self.arrived += [(broker, filter_, at, RATE) for at in seconds]
        if lost:
            self.arrived.append((broker, filter_, seconds[0], -lost))

    def report(self):
        offers = table(
            "offered",
            [
                {"filter": f, "origin": ORIGIN, "publications": n, "made_us": made(at)}
                for f, at, n in self.offered
            ],
            self.qos,
        )
        arrivals = table(
            "arrived",
            [
                {"filter": f, "origin": ORIGIN, "destination": broker, "made_us": made(at)}
                | {"publications": n}
                for broker, f, at, n in self.arrived
            ],
            self.qos,
        )
        clock = {broker: self.clocks.get(broker, 0) for broker in (ORIGIN, NEAR, FAR)}
        parts = {
            "wants": table(
                "wants",
                [
                    {"filter": f, "broker": broker, "epoch": epoch}
                    | {"since_us": us(since_s, clock[broker])}
                    | {"until_us": None if until_s is None else us(until_s, clock[broker])}
                    for broker, epoch, f, since_s, until_s in self.wants
                ],
            ),
            "agents_seen": table(
                "agents_seen",
                [
                    {"broker": broker, "epoch": epoch}
                    | {"first_us": us(first, clock[broker]), "last_us": us(last, clock[broker])}
                    for broker, epoch, first, last in self.lives
                ],
            ),
            "events": table(
                "events",
                [
                    {"broker": broker, "kind": k, "at_us": us(at, 0)}
                    for broker, k, at in self.events
                ],
            ),
            "deliveries": table("deliveries", []),
        }
        assert set(parts) == set(OF_BOOK)
        seen = {
            pair: OneWay(5_000 + clock[pair[1]] - clock[pair[0]], 9)
            for pair in ((ORIGIN, NEAR), (NEAR, ORIGIN), (ORIGIN, FAR), (FAR, ORIGIN))
        }
        counts = counts_of(
            *(merged(PARTIALS[n], t) for n, t in (("offered", offers), ("arrived", arrivals)))
        )
        rows = judged(counts, book_of(parts, pair_facts(seen, {}))).to_pylist()
        for row in rows:
            assert row["offered"] == row["arrived"] + row["missing"] - row["surplus"]
        return {(row["destination"], row["filter"]): row for row in rows}


def us(at_s, clock_us):
    return START_US + at_s * SECOND_US + clock_us


def made(at_s):
    at_us = us(at_s, 0)
    return at_us - at_us % MADE_WINDOW_US


def table(part, rows, qos=0):
    """Rows of a partial; what is not told is 0, or a word."""
    names = PARTIALS[part].columns
    told = [{"qos": qos, "strategy": "mesh", "federation": "f"} | row for row in rows]
    nothing = {"until_us", "filter", "neighbour", "subject", "detail", "value"}
    columns = {
        name: pa.array(
            [row.get(name, None if name in nothing else 0) for row in told], arrow_type(name)
        )
        for name in names
    }
    return pa.table(columns)


@pytest.mark.parametrize("until_s", range(41, 61))
def test_while_it_is_published_and_all_arrives_nothing_is_ever_missing(until_s):
    federation = Federation(until_s=until_s)
    federation.wanted(FAR)
    federation.came(FAR, range(until_s - 3))  # the last seconds are on their way

    row = federation.report()[FAR, "a"]

    assert (row["missing"], row["surplus"]) == (0, 0)
    assert row["offered"] >= RATE * 10


@pytest.mark.parametrize("until_s", [61, 65, 70, 600])
def test_what_a_cut_holds_back_under_custody_is_under_way_and_not_lost(until_s):
    federation = Federation(until_s=until_s)
    federation.wanted(FAR)
    federation.came(FAR, range(40))

    row = federation.report()[FAR, "a"]

    assert row["missing"] == 0
    assert row["under_way"] > 0


@pytest.mark.parametrize(("qos", "until_s"), [(0, 200), (1, 2_000)])
def test_what_nothing_later_proves_lost_is_lost_when_nobody_waits_any_more(qos, until_s):
    federation = Federation(qos=qos, until_s=until_s, sent_s=60)
    federation.wanted(FAR)
    federation.came(FAR, range(50))

    assert federation.report()[FAR, "a"]["missing"] == 10 * RATE


def test_a_relay_that_gets_its_first_subscriber_owes_nothing_of_before():
    federation = Federation()
    federation.wanted(FAR)
    federation.came(FAR, range(120))
    federation.wanted(NEAR, since_s=43)  # it relayed all of it, and joined the mesh at the start
    federation.came(NEAR, range(43, 120))

    row = federation.report()[NEAR, "a"]

    assert (row["missing"], row["note"]) == (0, "compared")
    assert row["offered"] == 50 * RATE  # the windows from 60, 10 s after 43, to 110: settled
    assert row["not_owed"] == 70 * RATE


def test_who_leaves_is_owed_nothing_that_was_late():
    federation = Federation()
    federation.wanted(NEAR, until_s=57)
    federation.came(NEAR, range(30))  # what came after was cut off

    assert federation.report()[NEAR, "a"]["missing"] == 0


def test_while_an_agent_is_widened_each_publication_counts_once():
    federation = Federation(filters=("a", "#"), until_s=200)
    federation.wanted(FAR)
    federation.wanted(FAR, "#", since_s=45, until_s=125)
    federation.came(FAR, range(200))
    federation.came(FAR, range(45, 125), "#", lost=0)

    rows = federation.report()

    assert sum(row["missing"] for row in rows.values()) == 0
    of_all = sum(row["offered"] for row in rows.values())
    assert of_all == 190 * RATE  # all windows that are settled, each once
    assert rows[FAR, "#"]["offered"] == 50 * RATE  # 60 to 110


@pytest.mark.parametrize("at_s", [33, 77, 95])
def test_a_planted_drop_is_always_said_and_no_copy_hides_it(at_s):
    federation = Federation(until_s=140)
    federation.wanted(FAR)
    federation.came(FAR, range(140))
    federation.arrived.append((FAR, "a", at_s, -1))  # dropped
    federation.arrived.append((FAR, "a", 15, 9))  # and copies of others

    row = federation.report()[FAR, "a"]

    assert (row["missing"], row["surplus"]) == (1, 9)


def test_a_subscriber_to_whom_nothing_comes_is_not_forgotten():
    federation = Federation(qos=0, until_s=120)
    federation.wanted(FAR)

    assert federation.report()[FAR, "a"]["missing"] >= 40 * RATE


def test_a_destination_whose_agent_dies_and_returns_owes_only_what_it_could_tell():
    federation = Federation(until_s=200)
    federation.lives[-1] = (FAR, 1, 0, 83)
    federation.lives.append((FAR, 2, 95, 200))
    federation.wanted(FAR)
    federation.wanted(FAR, since_s=95, epoch=2)
    federation.came(FAR, [at for at in range(200) if not 82 <= at < 97])

    row = federation.report()[FAR, "a"]

    assert row["missing"] == 0
    assert row["offered"] == (70 + 80) * RATE  # the windows from 0 to 70, and 110 to 190


@pytest.mark.parametrize("kind", ["collector_gap", "records_lost"])
def test_what_records_lack_is_no_loss(kind):
    federation = Federation(until_s=200)
    federation.wanted(FAR)
    federation.came(FAR, [at for at in range(200) if not 60 <= at < 63])
    federation.events.append((FAR, kind, 64))

    row = federation.report()[FAR, "a"]

    assert row["missing"] == 0
    assert row["offered"] >= 100 * RATE


@pytest.mark.parametrize("hours", [-3, 3])
def test_clocks_that_disagree_move_no_window(hours):
    federation = Federation(until_s=120)
    federation.clocks[FAR] = hours * 3_600 * SECOND_US
    federation.wanted(FAR, since_s=23)
    federation.came(FAR, range(23, 120), lost=0)
    federation.arrived.append((FAR, "a", 55, -2))

    assert federation.report()[FAR, "a"]["missing"] == 2


def test_records_of_earlier_agents_are_read_and_accuse_nobody():
    federation = Federation()
    federation.came(FAR, range(50))

    row = federation.report()[FAR, "a"]

    assert (row["missing"], row["note"]) == (0, "wishes not told")


def test_filters_named_wider_contain_the_other():
    for filter_ in ("a", "a/b", "a/#", "#", "+/x", "+/#", "a//b"):
        wider = wider_than(filter_)

        assert all(contains(one, filter_) and one != filter_ for one in wider)
        assert ("#" in wider) == (filter_ != "#")


def test_no_counts_are_no_rows():
    empty = COUNTS.empty_table()
    parts = {name: table(name, []) for name in OF_BOOK}

    assert len(judged(empty, book_of(parts, pair_facts({}, {})))) == 0
