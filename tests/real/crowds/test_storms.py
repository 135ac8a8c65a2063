"""Crowds that make a broker lose log lines: nobody who has a SUBACK goes unserved.

docs/security.md, "Threats and answers"; docs/protocol.md 9.
"""

import asyncio
import contextlib
import itertools
import time

import pytest

from tests.real.agent_log import named
from tests.real.crowds.crowd import Rude, churn, subscribe
from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import QUICK, eventually, gets_through, linked
from tests.real.polling import until, until_none
from tests.real.trust.test_signed import Office
from tests.real.undisturbed import tell, undisturbed

HONEST = 30


async def signed_pair(plain, tmp_path):
    """Two brokers with all their defaults, and signed agents."""
    office = Office(tmp_path / "office")
    brokers = [await plain.broker(extra_config=()) for _ in range(2)]
    agents = []
    for id_, broker in enumerate(brokers, 1):
        neighbours = [brokers[0].url] if id_ > 1 else []
        agents.append(
            await plain.agent(id_, broker, *neighbours, security="signed", more=office.section(id_))
        )
    for agent, neighbour in zip(agents, (2, 1), strict=True):
        await eventually(agent, linked(neighbour), "linked")
    return brokers, agents


@pytest.fixture
async def pair(plain, tmp_path):
    """Two brokers and their agents."""
    return await signed_pair(plain, tmp_path)


class Newcomer(Subscriber):
    """Notes when it was granted what it subscribed."""

    granted_s = None

    def on_subscribed(self, link):
        self.granted_s = time.monotonic()

    @property
    def waited_s(self):
        """How long it was without a publication since it might have had one."""
        return self.at_s[0] - self.granted_s


async def publish_all(port, names):
    """Each of ``names`` gets a number every fifth of a second, for ever."""
    publisher = Publisher(port, "none", client_id="pub", rate_hz=0.001)
    async with running(publisher):
        for number in itertools.count():
            for name in names:
                publisher.link.publish(f"honest/{name}", b"%d" % number, qos=0)
            await asyncio.sleep(0.2)


async def test_who_subscribes_in_a_storm_is_served_though_log_lines_are_lost(pair):
    brokers, agents = pair
    names = [f"n{number}" for number in range(HONEST)]
    newcomers = [
        Newcomer(brokers[1].port, f"honest/{name}", client_id=f"honest-{name}") for name in names
    ]
    steady = Subscriber(brokers[1].port, "steady/#", client_id="steady", qos=1)
    publisher = Publisher(brokers[0].port, "steady/1", client_id="steady-pub", qos=1, rate_hz=50)
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(running(steady, publisher))
        await gets_through(publisher, steady)
        on = await stack.enter_async_context(contextlib.AsyncExitStack())
        await on.enter_async_context(undisturbed("4 storms", publisher, steady, processes=agents))
        publishing = asyncio.create_task(publish_all(brokers[0].port, names))
        rude = [
            await stack.enter_async_context(Rude(brokers[1].port, f"storm-{number}"))
            for number in range(2)
        ]
        storms = [asyncio.create_task(churn(each, n)) for n, each in enumerate(rude)]
        for newcomer in newcomers:
            await asyncio.sleep(0.1)  # in the middle of it, wherever that is
            await stack.enter_async_context(running(newcomer))
        await until(lambda: all(each.granted_s for each in newcomers), "all were granted theirs")
        for storm in storms:
            storm.cancel()
        await until_none(
            lambda: [each.link.client_id for each in newcomers if not each.came], "all are served"
        )
        tell(row="4 storms, newcomers", p99_ms=max(1_000 * each.waited_s for each in newcomers))
        status = await agents[1].status()
        publishing.cancel()
        await on.aclose()

    assert status["discovery"]["lines_lost"] > 0, "the storm was too weak to show anything"
    assert named(agents[1], "discovery.lines_lost")


async def test_filters_of_a_killed_client_leave_the_table_in_the_end(plain):
    broker = await plain.broker(extra_config=QUICK)
    agent = await plain.agent(1, broker)
    stays = Subscriber(broker.port, "honest/1", client_id="stays")
    await eventually(agent, trusting(0), "it begins with nothing")

    async with running(stays), Rude(broker.port, "dies") as dies:
        await eventually(agent, trusting(1), "one that is there before")
        dies.write(subscribe([f"gone/{number}" for number in range(10_000)]))
        dies.kill()
        await eventually(agent, lambda s: s["discovery"]["lines_lost"], "lines were lost")
        await eventually(agent, lambda s: s["discovery"]["widened"], "that was noticed")

    async with running(stays):  # it comes again, as clients do
        await eventually(agent, trusting(1), "only who is there counts")


def trusting(filters):
    """Whether so many are wanted, and no doubt is left."""
    return lambda status: (
        status["discovery"]["trusted"] and status["discovery"]["wanted"] == filters
    )
