"""Requests go where frames came from, and not always to whoever shouts loudest."""

from federator.protocol.custody.custodian import FRESH_MS, ORIGINS_MAX, WAYS_MAX, Ways
from federator.protocol.types import BrokerId, Millis

ORIGIN, HONEST, LIAR = BrokerId(1), BrokerId(2), BrokerId(9)


def test_the_newest_way_is_asked_first_and_then_the_others():
    ways = Ways()
    ways.heard(ORIGIN, HONEST, Millis(0))
    ways.heard(ORIGIN, LIAR, Millis(1))

    assert [ways.next(ORIGIN, again=again) for again in (False, True, True, False)] == [
        LIAR,
        HONEST,
        LIAR,
        LIAR,
    ]
    assert ways.next(ORIGIN, again=False, but=(LIAR,)) == HONEST
    assert ways.next(BrokerId(7), again=False) is None


def test_ways_are_fresh_and_bounded():
    ways = Ways()
    for neighbour in range(100):
        ways.heard(ORIGIN, BrokerId(neighbour), Millis(0))
    assert len(ways.all(ORIGIN)) == WAYS_MAX

    ways.heard(ORIGIN, HONEST, Millis(FRESH_MS + 1))
    assert ways.all(ORIGIN) == [HONEST]

    for origin in range(2, ORIGINS_MAX + 2):
        ways.heard(BrokerId(origin), HONEST, Millis(0))
    assert ways.all(ORIGIN) == []
