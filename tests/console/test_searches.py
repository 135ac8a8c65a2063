"""Searches wait for their turn, as agents answer no more than two a second."""

import asyncio
import itertools
import time

import pytest

from federator.config.all_brokers.collector import CollectedBrokerSettings
from federator.config.all_brokers.console import ConsoleSettings
from federator.console import searches as module
from federator.console.observer import Observer
from federator.console.searches import GAP_MS, KEPT_MAX, WAITING_MAX, Searches
from federator.errors import LinkError
from federator.runtime.observability.pages import SEARCHES_PER_S


def row(client):
    return {"client": client, "action": "sub", "topic": "a/#"}


@pytest.fixture
async def asked(monkeypatch):
    """Searches of an observer whose agents answer at once; what was asked, and when."""
    asked = []

    async def answered(page, about):
        asked.append((about, time.monotonic()))
        return {1: {"rows": [row(about)], "rows_total": 1}, 2: {"rows": 7}}

    broker = CollectedBrokerSettings(url="mqtt://127.0.0.1:1")
    async with asyncio.TaskGroup() as tasks:
        observer = Observer(ConsoleSettings(brokers=(broker,)), tasks, changed=lambda: None)
        monkeypatch.setattr(observer, "ask_all", answered)
        yield Searches(observer), asked, observer


async def test_an_agent_that_answers_nonsense_is_left_out_and_counted(asked):
    searches, _, observer = asked
    told = await searches.everywhere("archive")

    assert [each["client"] for each in told["rows"]] == ["archive"]
    assert (told["asked"], observer.unclear) == (1, 1)


async def test_what_was_found_a_moment_ago_is_not_asked_again(asked, monkeypatch):
    searches, told, _ = asked
    await asyncio.gather(*(searches.everywhere("same") for _ in range(5)))
    assert len(told) == 1

    monkeypatch.setattr(searches._results, "_kept_ms", 0)
    await searches.everywhere("same")
    assert len(told) == 2


async def test_agents_are_asked_no_faster_than_they_answer(asked):
    searches, told, _ = asked
    await asyncio.gather(*(searches.everywhere(f"{n}") for n in range(4)))

    times = [at_s for _, at_s in told]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert min(gaps) > 0.9 * GAP_MS / 1_000
    assert GAP_MS * SEARCHES_PER_S > 1_000


async def test_so_many_wait_and_further_ones_are_told_so(asked, monkeypatch):
    searches, told, _ = asked
    monkeypatch.setattr(module, "GAP_MS", 50)
    searching = (searches.everywhere(f"{n}") for n in range(WAITING_MAX + 5))
    found = await asyncio.gather(*searching, return_exceptions=True)

    assert sum(isinstance(each, LinkError) for each in found) == 5
    assert len(told) == WAITING_MAX
    assert len(searches._results) == KEPT_MAX
