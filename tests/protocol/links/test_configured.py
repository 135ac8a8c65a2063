"""docs/protocol.md 4: what an operator says of links while they are in use."""

from federator.protocol.effects import CallOff, Dial, HangUp, NeighbourUnreachable, Send
from federator.protocol.events import LinksConfigured, NamedNeighbour
from federator.protocol.links.configured import LET_BE_TIMEOUTS, follow
from federator.protocol.links.neighbour import LinkConnection
from federator.protocol.messages.control import Bye
from federator.protocol.parameters import LinkCost
from federator.protocol.signals import LinkCostChanged, LinkDown
from tests.protocol.links.test_links import PARAMETERS, heard, hello, links, news, up_links

LET_BE_MS = LET_BE_TIMEOUTS * PARAMETERS.hello_timeout_ms


def said(*named, given_up=(), link_cost=LinkCost.HOPS):
    return LinksConfigured(tuple(named), frozenset(given_up), link_cost)


def named(**keys):
    return NamedNeighbour(**{"address": "b2", "expected_id": 2} | keys)


def test_another_cost_is_told_once_where_the_link_is_up():
    made = up_links()
    waiting = LinkConnection(2, "b3", 3, 1)
    made.on_connected(waiting, now_ms=15)
    word = said(named(cost=7), NamedNeighbour("b3", 3, 4))

    assert follow(word, made, now_ms=20) == [LinkCostChanged(2)]
    assert (made.cost_to(2), waiting.cost) == (7, 4)
    assert follow(word, made, now_ms=30) == []
    assert follow(said(named()), made, now_ms=40) == [LinkCostChanged(2)]
    assert made.cost_to(2) == 1


def test_a_cost_that_is_measured_from_now_on_stays_until_the_next_hello():
    made = up_links()
    word = said(named(), link_cost=LinkCost.DELAY)

    assert follow(word, made, now_ms=20) == []
    steps = made.on_hello(hello(hears=[heard(1, sent_at_ms=1_000)]), now_ms=1_040)

    assert LinkCostChanged(2) in steps
    assert made.cost_to(2) == 40
    assert follow(said(named(cost=3), link_cost=LinkCost.DELAY), made, now_ms=1_050) == [
        LinkCostChanged(2)
    ]
    made.on_hello(hello(hears=[heard(1, sent_at_ms=2_000)]), now_ms=2_040)
    assert made.cost_to(2) == 3, "what the operator says is not measured"


def test_who_is_given_up_is_told_so_and_is_not_called_back_for_what_it_said_before():
    made = up_links()

    steps = follow(said(given_up=["b2"]), made, now_ms=20)

    assert steps[:2] == [Send(1, Bye(1, 100, 1, given_up=True)), HangUp(1)]
    assert NeighbourUnreachable(2) in steps
    assert news(steps) == [LinkDown(2)]
    assert (made.connections, dict(made.up)) == ({}, {})
    late = made.on_hello(hello(hears=[heard(1)]), now_ms=30)
    late += made.on_deadline(now_ms=30 + PARAMETERS.hello_timeout_ms)
    late += made.on_deadline(now_ms=20 + LET_BE_MS)
    assert not [step for step in late if isinstance(step, Dial)]


def test_who_goes_on_speaking_was_told_of_us_by_its_own_operator_and_is_called_back():
    made = up_links()
    follow(said(given_up=["b2"]), made, now_ms=0)

    steps = []
    for now_ms in range(0, LET_BE_MS + 1, PARAMETERS.hello_interval_ms):
        assert not [step for step in steps if isinstance(step, Dial)], now_ms
        steps += made.on_hello(hello(), now_ms=now_ms)
        steps += made.on_deadline(now_ms=now_ms)

    assert [step for step in steps if isinstance(step, Dial)] == [Dial(2, "b2")]


def test_who_hears_that_it_is_given_up_dials_no_more_and_may_dial_again_later():
    made = up_links()

    assert CallOff(2) not in up_links().on_bye(Bye(2, 50, 1))
    steps = made.on_bye(Bye(2, 50, 1, given_up=True))
    made.on_disconnected(1)

    assert CallOff(2) in steps
    assert news(steps) == [LinkDown(2)]
    assert Dial(2, "b2") in made.on_hello(hello(conn=9), now_ms=60_000)


def test_an_address_where_another_broker_is_wanted_carries_no_link_with_the_one_there():
    made = up_links()

    steps = follow(said(named(expected_id=5)), made, now_ms=20)

    assert news(steps) == [LinkDown(2)]
    again = made.on_hello(hello(hears=[heard(1)]), now_ms=30)
    assert "neighbour.unexpected_id" in [getattr(step, "name", "") for step in again]
    assert dict(made.up) == {}
    assert news(follow(said(named()), made, now_ms=40)) == []
    assert made.on_hello(hello(hears=[heard(1)]), now_ms=50)
    assert list(made.up) == [2]


def test_an_id_that_is_named_for_who_is_there_changes_nothing():
    made = links()
    made.on_connected(LinkConnection(1, "b2", None, 1), now_ms=0)
    made.on_hello(hello(hears=[heard(1)]), now_ms=10)

    assert follow(said(named()), made, now_ms=20) == []
    assert list(made.up) == [2]
