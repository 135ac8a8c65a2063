"""docs/protocol.md 4, by hand."""

from federator.protocol.effects import Dial
from federator.protocol.links.links import (
    BEHIND_TIMEOUTS,
    DIAL_BACK_HELLOS,
    DIALS_PER_S_MAX,
    UNCONNECTED_MAX,
    Links,
)
from federator.protocol.links.neighbour import LinkConnection
from federator.protocol.messages.control import HeardNeighbour, Hello
from federator.protocol.parameters import Parameters
from federator.protocol.signals import LinkDown, LinkUp

PARAMETERS = Parameters()
NEWS = (LinkUp, LinkDown)


def links():
    made = Links(1, 100, "b1", PARAMETERS)
    made.on_local_up(now_ms=0)
    return made


def hello(sender=2, *, epoch=50, conn=1, hears=(), sent_at_ms=0, address=None, version=1):
    return Hello(version, sender, epoch, conn, sent_at_ms, address or f"b{sender}", tuple(hears))


def heard(conn, *, id=1, epoch=100, sent_at_ms=0, held_ms=0, ups=1, namesakes=()):
    return HeardNeighbour(id, epoch, conn, sent_at_ms, held_ms, ups, namesakes)


def up_links():
    made = links()
    made.on_connected(LinkConnection(1, "b2", 2, 1), now_ms=0)
    made.on_hello(hello(hears=[heard(1)]), now_ms=10)
    return made


def news(steps):
    return [s for s in steps if isinstance(s, NEWS)]


def test_a_neighbour_whose_hello_may_wait_behind_others_is_given_time_but_not_for_ever():
    made = up_links()
    due_ms = made.next_deadline_ms()
    silent_ms = 10 + PARAMETERS.hello_timeout_ms
    given_up_ms = 10 + BEHIND_TIMEOUTS * PARAMETERS.hello_timeout_ms

    while due_ms < given_up_ms:
        assert news(made.on_deadline(behind=True, now_ms=due_ms)) == [], due_ms
        due_ms = made.next_deadline_ms()
    assert due_ms - given_up_ms < PARAMETERS.hello_interval_ms
    assert silent_ms < given_up_ms
    assert news(made.on_deadline(behind=True, now_ms=due_ms)) == [LinkDown(2)]


def test_invented_strangers_are_bounded_and_keep_nobody_out():
    made = links()
    made.on_connected(LinkConnection(1, "b2", None, 1), now_ms=0)
    senders = [hello(i, address=f"x{i}") for i in range(100, 100 + 4 * UNCONNECTED_MAX)]

    dialled = [s for h in senders for s in made.on_hello(h, now_ms=10) if isinstance(s, Dial)]
    steps = made.on_hello(hello(2, hears=[heard(1)]), now_ms=20)

    assert len(made.neighbours) <= UNCONNECTED_MAX + 1
    assert dialled == []  # each may be behind the connection that is open
    assert news(steps) == [LinkUp(2)]
    later = made.on_deadline(now_ms=10 + DIAL_BACK_HELLOS * PARAMETERS.hello_interval_ms)
    assert len([s for s in later if isinstance(s, Dial)]) <= DIALS_PER_S_MAX
    made.on_deadline(now_ms=10_000)  # no timer of a forgotten sender is left
