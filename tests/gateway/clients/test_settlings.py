"""Questions to agents: which answer ends them, and when they end without one."""

import asyncio
from types import SimpleNamespace

import pytest

from federator.gateway.clients import settlings as module
from federator.gateway.clients.settlings import Settlings
from tests.real.polling import until

SOON_S = 0.05
LONG_S = 600.0
BROKER = 1


class Client:
    """Whose broker's agent is asked; ``expected``: the agent has not failed to answer lately."""

    def __init__(self, *, expected=True):
        self.asked = []
        self.answers = []
        self.moving = True
        self.broker = SimpleNamespace(
            id=BROKER, ask_settled=lambda *what: self.asked.append(what) or expected
        )


@pytest.fixture
def settlings():
    return Settlings(first=1_000)


async def test_an_answer_ends_a_question_and_so_does_its_time_limit(settlings):
    client = Client()
    for within_s in (LONG_S, LONG_S, SOON_S):
        settlings.ask(client, ("a",), client.answers.append, within_s=within_s)
    assert client.asked == [(number, ("a",)) for number in (1_001, 1_002, 1_003)]

    settlings.on_answer(BROKER, 1_001, known=True)
    settlings.on_answer(BROKER, 1_001, known=False)
    settlings.on_answer(BROKER, 1_002, known=False)
    assert client.answers == [True, False]

    await until(lambda: client.answers == [True, False, False], "its time is over")


async def test_an_agent_that_answers_nobody_is_not_waited_for(settlings):
    client = Client(expected=False)

    settlings.ask(client, ("a",), client.answers.append, within_s=LONG_S)

    await until(lambda: client.answers == [False], "it is said at once")


async def test_only_the_agent_at_the_clients_broker_and_of_this_start_answers(settlings):
    client = Client()
    settlings.ask(client, ("a",), client.answers.append, within_s=LONG_S)

    settlings.on_answer(BROKER + 1, 1_001, known=True)
    settlings.on_answer(BROKER, 1, known=True)
    assert client.answers == []

    settlings.on_answer(BROKER, 1_001, known=True)
    assert client.answers == [True]


async def test_nothing_is_said_to_a_client_that_is_gone(settlings):
    gone, here = Client(), Client()
    for client in (gone, here):
        settlings.ask(client, ("a",), client.answers.append, within_s=SOON_S)

    settlings.forget(gone)
    settlings.on_answer(BROKER, 1_001, known=True)

    await asyncio.sleep(2 * SOON_S)
    assert (gone.answers, here.answers) == ([], [False])


async def test_about_a_client_that_is_moving_the_agent_is_asked_until_it_says_yes(
    settlings, monkeypatch
):
    monkeypatch.setattr(module, "AGAIN_S", SOON_S)
    client, ends = Client(expected=False), []
    settlings.ask_until_known(client, ("a",), lambda: ends.append(1), within_s=LONG_S)
    await asyncio.sleep(3 * SOON_S)
    assert len(client.asked) == 1, "many may be asked about at once: the answer may be late"
    for number in (1_001, 1_002):
        settlings.on_answer(BROKER, number, known=False)
        await until(lambda n=number: client.asked[-1][0] > n, "it is asked again")

    settlings.on_answer(BROKER, 1_003, known=True)

    await asyncio.sleep(3 * SOON_S)
    assert len(client.asked) == 3
    assert ends == [1]


@pytest.mark.parametrize("moving", [True, False])
async def test_it_is_asked_no_longer_when_the_time_or_the_move_is_over(
    settlings, monkeypatch, moving
):
    monkeypatch.setattr(module, "AGAIN_S", SOON_S)
    client, ends = Client(), []
    settlings.ask_until_known(client, ("a",), lambda: ends.append(1), within_s=2 * SOON_S)
    settlings.on_answer(BROKER, 1_001, known=False)
    client.moving = moving

    await asyncio.sleep(5 * SOON_S)
    asked = len(client.asked)
    await asyncio.sleep(3 * SOON_S)

    assert len(client.asked) == asked
    assert bool(ends) == moving
