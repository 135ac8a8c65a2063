"""Questions to agents: who waits how long for which answer."""

import asyncio
from types import SimpleNamespace

import pytest

from federator.gateway.clients.settlings import Settlings
from federator.gateway.metrics import GatewayCounters
from tests.real.polling import until

SETTLE_S = 0.05
LONG_S = 600.0
BROKER = 1


class Client:
    """Whose broker's agent is asked; ``expected``: the agent has not failed to answer lately."""

    def __init__(self, *, expected=True):
        self.asked = []
        self.told = []
        self.broker = SimpleNamespace(
            id=BROKER, ask_settled=lambda *what: self.asked.append(what) or expected
        )

    def on_settled(self, token):
        self.told.append(token)


@pytest.fixture
def counters():
    return GatewayCounters()


@pytest.fixture
def settlings(counters):
    return Settlings(settle_s=SETTLE_S, recent_s=LONG_S, counters=counters)


async def test_a_client_that_waits_is_told_whatever_the_answer_and_at_last_without_one(
    settlings, counters
):
    client = Client()
    for token in (7, 8, 9):
        settlings.ask(client, token, ("a",), client_waits=True)
    assert client.asked == [(1, ("a",)), (2, ("a",)), (3, ("a",))]

    settlings.on_answer(BROKER, 1, known=True)
    settlings.on_answer(BROKER, 2, known=False)
    assert client.told == [7, 8]

    await until(lambda: client.told == [7, 8, 9], "its time is over")
    assert (counters.settled, counters.unsettled) == (1, 2)


async def test_a_client_does_not_wait_for_an_agent_that_answers_nobody(counters):
    settlings = Settlings(settle_s=LONG_S, recent_s=LONG_S, counters=counters)
    client = Client(expected=False)

    settlings.ask(client, 7, ("a",), client_waits=True)

    await until(lambda: client.told == [7], "it is told at once")


async def test_for_a_client_that_was_moved_the_agent_is_asked_until_it_says_yes(
    settlings, counters
):
    client = Client(expected=False)
    settlings.ask(client, 7, ("a",), client_waits=False)

    settlings.on_answer(BROKER, 1, known=False)
    settlings.on_answer(BROKER, 1, known=False)
    await until(lambda: len(client.asked) == 2, "it is asked again")
    settlings.on_answer(BROKER, 1, known=False)
    await until(lambda: len(client.asked) == 3, "and again")
    assert client.told == []

    settlings.on_answer(BROKER, 1, known=True)
    settlings.on_answer(BROKER, 1, known=True)
    assert client.asked == [(1, ("a",))] * 3
    assert client.told == [7]
    assert (counters.settled, counters.unsettled) == (1, 0)


async def test_only_the_agent_at_the_clients_broker_and_of_this_start_answers(counters):
    settlings = Settlings(settle_s=LONG_S, recent_s=LONG_S, counters=counters, first=1_000)
    client = Client()
    settlings.ask(client, 7, ("a",), client_waits=True)

    settlings.on_answer(BROKER + 1, 1_001, known=True)
    settlings.on_answer(BROKER, 1, known=True)
    assert client.told == []

    settlings.on_answer(BROKER, 1_001, known=True)
    assert client.told == [7]


async def test_half_of_what_is_remembered_is_the_end_of_asking(counters):
    settlings = Settlings(settle_s=0.0, recent_s=0.2, counters=counters)
    client = Client()

    settlings.ask(client, 7, ("a",), client_waits=False)

    await until(lambda: client.told == [7], "its time is over")
    assert counters.unsettled == 1


async def test_nobody_is_asked_or_told_for_a_client_that_is_gone(settlings):
    gone, here = Client(), Client()
    settlings.ask(gone, 7, ("a",), client_waits=False)
    settlings.on_answer(BROKER, 1, known=False)
    settlings.ask(here, 8, ("b",), client_waits=False)

    settlings.forget(gone)
    settlings.on_answer(BROKER, 1, known=True)
    settlings.on_answer(BROKER, 2, known=False)

    await until(lambda: len(here.asked) == 2, "another one is asked for again, later")
    assert (len(gone.asked), gone.told) == (1, [])


async def test_answers_come_from_the_loop_and_end_all_that_waits(settlings):
    client = Client()
    settlings.ask(client, 7, ("a",), client_waits=False)
    settlings.on_answer(BROKER, 1, known=False)
    settlings.on_answer(BROKER, 1, known=True)

    await asyncio.sleep(2 * SETTLE_S)

    assert len(client.asked) == 1, "the answer yes came before it was asked again"
