"""Who of ours subscribed before the agent came is asked to do it again."""

from federator.protocol.discovery import RollCall
from federator.protocol.discovery.log_lines import Subscribed
from federator.protocol.discovery.roll_call import ROLL_GAP_MS
from tests.protocol.discovery.harness import CONNECTED, Driven


def test_the_roll_is_called_at_the_start_and_whoever_answers_is_counted():
    driven = Driven()

    driven.up()
    assert driven.rolls == 1
    for number in range(6):
        driven.log(Subscribed("federator-gateway-g-0123", 0, f"$fed/fed/{number}"))
    driven.counts(6)

    assert driven.discovery.snapshot().trusted
    assert driven.wanted == set()


def test_it_is_called_again_while_the_broker_counts_more_but_ever_more_seldom():
    driven = Driven()
    driven.up()

    for _ in range(360):
        driven.counts(3)
        driven.later(9_400)

    assert 5 <= driven.rolls <= 12


def test_nothing_is_called_without_log_topics():
    driven = Driven(log_topics=False)

    driven.up()

    assert driven.rolls == 0


def test_our_client_answers_what_it_has_not_answered():
    roll_call = RollCall()
    roll_call.on_up()

    assert not roll_call.asks(0, retained=True, now_ms=0), "nobody asks"
    assert roll_call.asks(7, retained=False, now_ms=1)
    assert not roll_call.asks(7, retained=False, now_ms=60_000)
    assert roll_call.asks(3, retained=False, now_ms=60_001), "an agent whose clock went back"


def test_a_guide_that_stood_there_before_us_asks_nothing():
    roll_call = RollCall()
    roll_call.on_up()

    assert not roll_call.asks(7, retained=True, now_ms=0)
    assert not roll_call.asks(7, retained=False, now_ms=1)
    assert roll_call.asks(8, retained=False, now_ms=2)


def test_forged_calls_bring_little():
    roll_call = RollCall()

    answered = sum(roll_call.asks(n + 1, retained=False, now_ms=n * 10) for n in range(1_000))

    assert answered == 10_000 // ROLL_GAP_MS


def test_what_is_unknown_is_told_with_how_many_and_since_when():
    driven = Driven()
    driven.up()
    driven.sys(CONNECTED, 4)
    came_ms = driven.now_ms

    driven.counts(3, shared=1)

    told = driven.discovery.snapshot()
    assert (told.unknown, told.unknown_clients, told.unheard_before_ms) == (4, 3, came_ms)
    said = driven.notices[-1]
    assert (said.name, said.details) == ("discovery.unknown", {"subscriptions": 4, "clients": 3})

    driven.counts(0)
    told = driven.discovery.snapshot()
    assert (told.unknown, told.unknown_clients, told.unheard_before_ms) == (0, 0, None)


def test_an_operator_bounds_what_is_asked_for_out_of_doubt():
    driven = Driven(widen_to=("alarm/#", "door/+"))
    driven.up()
    driven.log(Subscribed("known", 0, "door/+"))
    driven.counts(3)

    assert driven.discovery.widened
    assert driven.wanted == {"alarm/#", "door/+"}
    assert driven.discovery.doubted == {"alarm/#"}

    driven.counts(1)
    assert driven.wanted == {"door/+"}
    assert driven.discovery.doubted == frozenset()
