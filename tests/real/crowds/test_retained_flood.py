"""One user sets more retained topics than there are places: others' values still reach everybody.

docs/security.md, "Threats and answers"; docs/protocol.md 13.
"""

import contextlib
import os

import pytest

from tests.real.agent_log import named
from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import DEEP, QUICK, eventually, gets_through, linked
from tests.real.polling import until
from tests.real.retained.retained_clients import client
from tests.real.trust.test_signed import Office
from tests.real.undisturbed import undisturbed

PLACES = int(os.environ.get("RETAINED_PLACES", "2000"))
FLOOD = PLACES + PLACES // 5 * 2
HONEST = 50
ROUNDS = 3


@pytest.fixture
async def pair(plain, tmp_path):
    """Two brokers and signed agents, with few places and many comparisons."""
    office = Office(tmp_path / "office")
    settings = f"[retained]\ntopics_max = {PLACES}\nresync_s = 1\n"
    brokers = [await plain.broker(extra_config=(*QUICK, *DEEP)) for _ in range(2)]
    agents = []
    for id_, broker in enumerate(brokers, 1):
        neighbours = [brokers[0].url] if id_ > 1 else []
        keys = office.section(id_)
        agents.append(
            await plain.agent(id_, broker, *neighbours, security="signed", more=settings + keys)
        )
    for agent, neighbour in zip(agents, (2, 1), strict=True):
        await eventually(agent, linked(neighbour), "linked")
    return brokers, agents


async def set_all(setter, topics, payload=b"1"):
    for number, topic in enumerate(topics):
        setter.send(topic, payload)
        if number % 500 == 0:
            await until(lambda: setter.link.unacknowledged < 100, "the broker keeps up")
    await until(lambda: not setter.link.unacknowledged, "the broker has all values")


def wants(filter_):
    """Whether others' interest in ``filter_`` has arrived."""
    return lambda status: filter_ in [mesh["filter"] for mesh in status["meshes"]]


async def rounds_pass(agent):
    """Wait until ``agent`` compared a few times more."""
    done = (await agent.status())["retained"]["rounds"]
    await eventually(
        agent, lambda status: status["retained"]["rounds"] >= done + ROUNDS, "it compares"
    )


async def test_a_flood_of_retained_topics_keeps_nobody_elses_value_back(pair):
    brokers, agents = pair
    steady = Subscriber(brokers[1].port, "steady/#", client_id="steady", qos=1)
    publisher = Publisher(brokers[0].port, "steady/1", client_id="steady-pub", qos=1, rate_hz=50)
    before, after = (
        [[f"{at}/{when}/{number}" for number in range(HONEST)] for at in (1, 2)]
        for when in ("before", "after")
    )
    async with contextlib.AsyncExitStack() as stack:

        async def one(at, name, *filters):
            return await stack.enter_async_context(client(brokers[at], name, *filters))

        await stack.enter_async_context(running(steady, publisher))
        await gets_through(publisher, steady)
        on = await stack.enter_async_context(contextlib.AsyncExitStack())
        traffic = undisturbed("5 retained topics", publisher, steady, processes=agents)
        await on.enter_async_context(traffic)
        honest = [await one(at, f"honest-{at}") for at in (0, 1)]
        for at in (0, 1):
            await set_all(honest[at], before[at])

        listener = await one(1, "listener", "flood/#")
        await eventually(agents[0], wants("flood/#"), "the flood will cross")
        await set_all(await one(0, "flooder"), [f"flood/{number}" for number in range(FLOOD)])
        await until(lambda: len(listener.latest) == FLOOD, "the flood crosses", deadline_s=60)
        for at in (0, 1):
            await set_all(honest[at], after[at])
        late = [await one(1 - at, f"late-{at}", f"{at + 1}/#") for at in (0, 1)]
        for at in (0, 1):
            wanted = {*before[at], *after[at]}
            await until(lambda w=wanted, at=at: w <= late[at].latest.keys(), "late ones have all")
        await set_all(honest[0], after[0], b"2")
        await until(
            lambda: [late[0].latest[t] for t in after[0]] == [b"2"] * HONEST, "changes come"
        )
        for agent in agents:
            await rounds_pass(agent)
        came = [len(each.came) for each in (*late, listener)]
        for agent in agents:
            await rounds_pass(agent)
            retained = (await agent.status())["retained"]
            assert retained["topics"] + retained["tombstones"] <= PLACES
            assert (retained["full"]["origin"], retained["full"]["below"]) == (1, "flood")
        await on.aclose()

        assert [len(each.came) for each in (*late, listener)] == came, "nothing comes again"
    for agent in agents:
        assert len(named(agent, "retained.full")) == 1
