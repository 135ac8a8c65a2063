"""Strangers have so much room and no more, and who is silent gives way to who comes."""

import pytest

from federator.gateway.metrics import GatewayCounters
from federator.runtime.process.antechamber import Antechamber

ROOM, SHARE, BYTES = 10, 4, 1_000


class Door:
    """An antechamber, and the names of those that had to give way, in order."""

    def __init__(self):
        self.counters = GatewayCounters()
        self.gone = []
        self.antechamber = Antechamber(
            self.counters,
            unfinished_max=ROOM,
            per_address_max=SHARE,
            bytes_max=BYTES,
            shared=["10.0.0.0/8", "::1"],
        )

    def enter(self, host, name=None):
        return self.antechamber.enter(host, lambda: self.gone.append(name))


@pytest.fixture
def door():
    return Door()


def test_the_oldest_silent_one_gives_way_and_who_spoke_does_not(door):
    places = [door.enter(f"1.0.0.{number}", number) for number in range(ROOM)]
    places[0].finish(lambda: door.gone.append("spoke"))
    assert door.enter("2.0.0.1") is not None
    assert door.gone == []

    assert door.enter("2.0.0.2") is not None

    assert door.gone == [1]
    assert (door.counters.gave_way, len(door.antechamber)) == (1, ROOM)


@pytest.mark.parametrize(
    ("first", "other"),
    [("1.2.3.4", "::ffff:1.2.3.4"), ("2001:db8::1", "2001:db8::2"), ("fe80::1%eth0", "fe80::2")],
)
def test_an_address_crowds_out_itself_alone(door, first, other):
    door.enter("1.2.3.5", "neighbour")
    for number in range(SHARE):
        door.enter(first, number)

    door.enter(other, "new")

    assert door.gone == [0]


def test_an_address_all_of_whose_places_wait_gets_no_more(door):
    for _ in range(SHARE):
        door.enter("1.2.3.4").finish(lambda: None)

    assert door.enter("1.2.3.4") is None
    assert door.enter("1.2.3.5") is not None
    assert door.counters.over_share == 1


@pytest.mark.parametrize("host", ["10.1.2.3", "::ffff:10.1.2.3", "::1", ""])
def test_who_shares_an_address_has_no_share_of_his_own(door, host):
    for _ in range(SHARE * 2):
        door.enter(host)

    assert door.gone == []


def test_who_sent_the_most_gives_way_when_it_is_too_much_in_sum(door):
    small, large = door.enter("1.0.0.1", "small"), door.enter("1.0.0.2", "large")
    large.finish(lambda: door.gone.append("large, which waits"))
    large.receive(BYTES - 10)
    small.receive(10)
    assert door.gone == []

    small.receive(1)

    assert door.gone == ["large, which waits"]
    assert door.antechamber.bytes == 11


def test_who_left_counts_no_more_and_twice_is_once(door):
    places = [door.enter("1.0.0.1") for _ in range(SHARE)]
    for place in places:
        place.receive(10)
        place.leave()
        place.leave()
        place.receive(10)
        place.finish(lambda: None)

    assert (len(door.antechamber), door.antechamber.bytes) == (0, 0)
    assert [door.enter("1.0.0.1") is not None for _ in range(SHARE)] == [True] * SHARE
    assert door.gone == []
