"""Brokers that join by naming any one other, leave, and come back. docs/protocol.md 16."""

import asyncio
import contextlib
import time

from tests.real.agent_log import named, tally
from tests.real.flow import running
from tests.real.plain_agents import eventually, gets_through, linked
from tests.real.polling import until
from tests.real.streams import both_ways, clients

LEAVING_S = 30.0
"""Leaving takes a tenth of a second; here a link whose end falls silent stays up for a minute."""


@contextlib.asynccontextmanager
async def running_both_ways(here, there):
    streams = both_ways(here, there)
    async with running(*clients(streams)):
        yield streams


async def test_three_that_join_in_a_chain_at_once_find_each_other(plain):
    brokers = [await plain.broker() for _ in range(4)]
    agents = [
        plain.agent(4 - n, brokers[n], *([brokers[n - 1].url] if n else [])) for n in range(4)
    ]
    agents = await asyncio.gather(*agents)
    for n, agent in enumerate(agents):
        beside = [4 - m for m in (n - 1, n + 1) if 0 <= m < 4]
        await eventually(agent, linked(*beside), f"agent {n} has its links")

    async with running_both_ways(brokers[0], brokers[3]) as streams:
        for publisher, subscriber in streams:
            await gets_through(publisher, subscriber)
            assert subscriber.duplicates == 0
    plain.assert_calm()


async def test_leaving_is_known_at_once_and_coming_back_heals(plain):
    brokers = [await plain.broker() for _ in range(2)]
    patient = {"hello_timeout_ms": 60_000}
    stays = await plain.agent(1, brokers[0], links=patient)
    leaves = await plain.agent(2, brokers[1], brokers[0].url, links=patient)
    await eventually(stays, linked(2), "linked")
    attempts = len(named(stays, "connection.up"))

    async with running_both_ways(*brokers) as streams:
        await gets_through(*streams[0])
        stopping = asyncio.create_task(leaves.stop())
        left_s = time.monotonic()
        await until(lambda: named(stays, "link.down"), "the link is down")
        took_s = time.monotonic() - left_s
        assert await stopping
        await asyncio.sleep(2)  # time in which a storm of reconnections would show

        assert named(stays, "link.down")[0]["reason"] == "said bye or died"
        assert took_s < LEAVING_S, "not by its silence"
        assert len(named(stays, "connection.up")) == attempts
        assert tally(stays)["link.down"] == 1
        await leaves.start()
        await eventually(stays, linked(2), "linked again")
        for publisher, subscriber in streams:
            await gets_through(publisher, subscriber)
            assert subscriber.duplicates == 0
    plain.assert_calm()


async def test_a_stranger_is_not_dialled_back_where_that_is_refused(plain):
    brokers = [await plain.broker() for _ in range(2)]
    refuses = await plain.agent(1, brokers[0], links={"dial_back": False})
    joins = await plain.agent(2, brokers[1], brokers[0].url)

    await eventually(
        joins, lambda s: s["links"] and s["links"][0]["connected"], "it reached the other broker"
    )
    await asyncio.sleep(3)  # longer than a dial-back takes

    assert (await refuses.status())["links"] == []
    assert [link["state"] for link in (await joins.status())["links"]] == ["down"]


async def test_a_joining_broker_is_dialled_at_the_address_it_advertises(plain):
    brokers = [await plain.broker() for _ in range(2)]
    there = f"mqtt://localhost:{brokers[1].port}"
    first = await plain.agent(1, brokers[0])
    await plain.agent(2, brokers[1], brokers[0].url, broker={"advertise": there})

    status = await eventually(first, linked(2), "linked")

    assert [(k["address"], k["dialled_back"]) for k in status["links"]] == [(there, True)]


async def test_a_configured_broker_that_restarts_is_called_by_one_connection_of_each_kind(plain):
    first_broker, second_broker = await plain.broker(), await plain.broker()
    first = await plain.agent(1, first_broker)
    second = await plain.agent(2, second_broker, first_broker.url)
    await eventually(first, linked(2), "linked")

    await first_broker.restart()

    for agent, other in ((first, 2), (second, 1)):
        await eventually(agent, linked(other), "linked again")
    async with running_both_ways(first_broker, second_broker) as streams:
        for publisher, subscriber in streams:
            await gets_through(publisher, subscriber)
    assert "already connected" not in first_broker.log_path.read_text()
