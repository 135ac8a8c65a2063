"""How a console asks an agent that drops a question."""

import asyncio

import pytest

from federator.config.all_brokers.collector import CollectedBrokerSettings
from federator.config.all_brokers.console import ConsoleSettings
from federator.console import observer as module
from federator.console.observer import Observer
from federator.errors import LinkError


@pytest.mark.parametrize(("dropped", "asked"), [(0, 1), (1, 2), (2, 2)])
async def test_an_agent_that_does_not_answer_is_asked_once_more(monkeypatch, dropped, asked):
    monkeypatch.setattr(module, "AGAIN_S", 0.1)
    monkeypatch.setattr(module, "ANSWER_S", 0.2)
    sent = []

    def send(source, broker, number, page, about):
        sent.append((broker, number, page, about))
        if len(sent) > dropped:
            observer._waiting[broker, number].set_result({"why": "x"})

    named = CollectedBrokerSettings(url="mqtt://127.0.0.1:1")
    async with asyncio.TaskGroup() as tasks:
        observer = Observer(ConsoleSettings(brokers=(named,)), tasks, changed=lambda: None)
        monkeypatch.setattr(observer, "_source", lambda broker: None)
        monkeypatch.setattr(observer, "_request_page", send)
        if dropped < asked:
            assert await observer.ask(4, "explain", "a") == {"why": "x"}
        else:
            with pytest.raises(LinkError, match="does not answer"):
                await observer.ask(4, "explain", "a")

    assert sent == [sent[0]] * asked
    assert (observer.asked, observer.unanswered) == (1, int(dropped == asked))
    assert not observer._waiting
