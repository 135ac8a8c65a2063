"""Terms: what is told of when our clients wanted which filter."""

import pytest

from federator.protocol.telemetry import terms as terms_module
from federator.protocol.telemetry.terms import AGAIN_US, FRESH_US, Terms

START_US = 1_000_000_000


def test_a_term_is_told_when_it_has_lasted_again_every_minute_and_when_it_ends() -> None:
    terms = Terms()
    terms.change(["a", "$fed/x"], [], now_us=START_US)

    told = {
        after: terms.rows(now_us=START_US + after)
        for after in (0, FRESH_US, FRESH_US + AGAIN_US - 1, FRESH_US + AGAIN_US)
    }
    terms.change([], ["a"], now_us=START_US + 2 * AGAIN_US)
    ended = terms.rows(now_us=START_US + 2 * AGAIN_US)

    open_term = {"filter": "a", "since_us": START_US}
    assert list(told.values()) == [[], [open_term], [], [open_term]]
    assert ended == [open_term | {"until_us": START_US + 2 * AGAIN_US}]
    assert terms.rows(now_us=START_US + 9 * AGAIN_US) == []


def test_clients_that_come_and_go_within_seconds_leave_no_record() -> None:
    terms = Terms()

    for at in range(1_000):
        terms.change(["a"], [], now_us=START_US + at)
        terms.change([], ["a"], now_us=START_US + at)

    assert terms.rows(now_us=START_US + AGAIN_US) == []


def test_what_finds_no_room_in_a_window_is_told_in_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(terms_module, "ROWS_MAX", 3)
    terms = Terms()
    filters = [f"f/{at}" for at in range(7)]
    terms.change(filters, [], now_us=START_US)
    later_us = START_US + FRESH_US

    windows = [terms.rows(now_us=later_us) for _ in range(4)]

    assert [len(rows) for rows in windows] == [3, 3, 1, 0]
    assert [row["filter"] for rows in windows for row in rows] == filters


def test_a_clock_that_is_set_back_silences_nobody() -> None:
    terms = Terms()
    terms.change(["a"], [], now_us=START_US)

    assert terms.rows(now_us=START_US - 10 * AGAIN_US) == [{"filter": "a", "since_us": START_US}]
