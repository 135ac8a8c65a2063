"""Requests go where frames came from, and not always to whoever shouts loudest."""

from federator.protocol.custody.custodian import FRESH_MS, ORIGINS_MAX, WAYS_MAX, Ways
from federator.protocol.messages.control import AskedChain, RepairRequest
from federator.protocol.types import BrokerId, Epoch, Millis

ORIGIN, HONEST, ASKER, LIAR = BrokerId(1), BrokerId(2), BrokerId(3), BrokerId(9)


def test_the_newest_way_is_asked_first_and_then_the_others():
    ways = Ways()
    ways.note(ORIGIN, HONEST, Millis(0))
    ways.note(ORIGIN, LIAR, Millis(1))

    assert [ways.next(request(after)) for after in (1, 1, 1, 2)] == [LIAR, HONEST, LIAR, LIAR]
    assert ways.next(request(1, path=(LIAR,))) == HONEST
    assert ways.next(request(1, origin=BrokerId(7))) is None


def test_who_swallows_a_request_does_not_get_it_again_however_loud_and_whoever_else_asks():
    ways = Ways()
    asked = []
    for ms in range(2):
        ways.note(ORIGIN, HONEST, Millis(2 * ms))
        ways.note(ORIGIN, LIAR, Millis(2 * ms + 1))
        asked += [ways.next(request(1, path=(BrokerId(asker),))) for asker in (3, 4, 5)]

    assert asked == [LIAR] * 3 + [HONEST] * 3


def request(after, *, origin=ORIGIN, path=(ASKER,)):
    return RepairRequest(origin, Epoch(1), path, (AskedChain(bytes(8), after, 0),))


def test_ways_are_fresh_and_bounded():
    ways = Ways()
    for neighbour in range(100):
        ways.note(ORIGIN, BrokerId(neighbour), Millis(0))
    assert len(ways.all(ORIGIN)) == WAYS_MAX

    ways.note(ORIGIN, HONEST, Millis(FRESH_MS + 1))
    assert ways.all(ORIGIN) == [HONEST]

    for origin in range(2, ORIGINS_MAX + 2):
        ways.note(BrokerId(origin), HONEST, Millis(0))
    assert ways.all(ORIGIN) == []
