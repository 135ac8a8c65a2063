"""Time to spare, as far as the kernel and our own clock tell."""

import pytest

from federator.runtime.process.spare_time import LOOK_S, SpareTime, machine_ticks


class Machine:
    """Counts ticks and seconds as it is told."""

    def __init__(self):
        self.now_s = self.own_s = 0.0
        self.idle = self.total = self.looks = 0

    def ticks(self):
        self.looks += 1
        return self.idle, self.total

    def passes(self, *, idle, own, seconds=2 * LOOK_S):
        """So much time with these shares of it."""
        self.now_s += seconds
        self.own_s += own * seconds
        self.total += 1_000
        self.idle += int(1_000 * idle)


@pytest.fixture
def machine():
    return Machine()


@pytest.fixture
def spare(machine):
    return SpareTime(machine.ticks, lambda: machine.now_s, lambda: machine.own_s)


@pytest.mark.parametrize(
    ("idle", "own", "there_is"),
    [(0.9, 0.1, True), (0.31, 0.15, True), (0.29, 0.1, False), (0.9, 0.5, False), (0, 0, False)],
)
def test_there_is_time_where_the_machine_and_the_thread_have_some(
    machine, spare, idle, own, there_is
):
    machine.passes(idle=idle, own=own)

    assert spare() == there_is


@pytest.mark.parametrize(
    "shares",
    [
        [(0.5, 0.1), (0.2, 0.1), (0.1, 0.1), (0.2, 0.1), (0.4, 0.1)],
        [(0.5, 0.1), (0.5, 0.7), (0.5, 0.9), (0.5, 0.7), (0.5, 0.15)],
    ],
)
def test_it_stays_until_much_less_is_unused_or_the_thread_takes_most(machine, spare, shares):
    told = []
    for idle, own in shares:
        machine.passes(idle=idle, own=own)
        told.append(spare())

    assert told == [True, True, False, False, True]


def test_it_looks_seldom_however_often_it_is_asked(machine, spare):
    for _ in range(1_000):
        machine.passes(idle=0.5, own=0.1, seconds=LOOK_S / 100)
        spare()

    assert machine.looks <= 12


def test_where_nobody_can_tell_there_is_none(machine):
    def fails():
        raise FileNotFoundError

    spare = SpareTime(fails, lambda: machine.now_s, lambda: machine.own_s)
    machine.passes(idle=0.9, own=0.0)

    assert not spare()


def test_this_machine_tells():
    idle, total = machine_ticks()

    assert 0 < idle < total
