"""Losses, duplicates and changes of order are counted exactly."""

import pytest

from lab.grid.clients import Tally, stamped

SENT_NS = 1_000_000_000


def arrive(tally, *numbers, run=1, delay_ms=5.0):
    for number in numbers:
        payload = stamped(run, number, SENT_NS, payload_bytes=64)
        tally.arrived(payload, SENT_NS + int(delay_ms * 1e6))


def tally_of(publications):
    return Tally(1, publications, payload_bytes=64)


def test_all_once_and_in_order_is_exact():
    tally = tally_of(3)
    arrive(tally, 0, 1, 2)

    assert tally.arrivals(3).exact


@pytest.mark.parametrize(
    ("numbers", "field", "count"),
    [
        ((0, 2), "lost", 1),
        ((0, 1, 1, 1, 2), "duplicates", 2),
        ((0, 2, 1), "disordered", 1),
        ((2, 0, 1), "disordered", 2),
        ((0, 1, 2, 3), "foreign", 1),
    ],
)
def test_each_fault_is_counted(numbers, field, count):
    tally = tally_of(3)
    arrive(tally, *numbers)

    arrivals = tally.arrivals(3)

    assert getattr(arrivals, field) == count
    assert not arrivals.exact


def test_a_late_duplicate_is_no_change_of_order():
    tally = tally_of(3)
    arrive(tally, 0, 1, 2, 0)

    arrivals = tally.arrivals(3)

    assert (arrivals.duplicates, arrivals.disordered) == (1, 0)


def test_what_another_run_or_another_program_published_is_foreign():
    tally = tally_of(2)
    arrive(tally, 0, run=2)
    tally.arrived(b"hello", SENT_NS)
    tally.arrived(b"", SENT_NS)

    assert tally.arrivals(2).foreign == 3


def test_delays_are_those_of_first_copies_in_milliseconds():
    tally = tally_of(4)
    for number, delay_ms in enumerate((4.0, 6.0, 5.0, 9.0)):
        arrive(tally, number, delay_ms=delay_ms)
    arrive(tally, 0, delay_ms=1_000)

    arrivals = tally.arrivals(4)

    assert arrivals.delay_ms_mean == pytest.approx(6.0)
    assert arrivals.delay_ms_deviation == pytest.approx(3.5**0.5)
    assert (arrivals.delay_ms_min, arrivals.delay_ms_max) == (4.0, 9.0)


def test_nothing_arrived_is_all_lost():
    arrivals = tally_of(7).arrivals(7)

    assert (arrivals.lost, arrivals.received) == (7, 0)
