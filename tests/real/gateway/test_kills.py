"""Many brokers at once, killed or drained under fifty clients of a gateway.

3.1.1 and 5, clean and persistent sessions, 20 messages a second each, QoS 1. No client sees a
disconnect, nothing that a publisher had acknowledged is lost, and traffic flows again soon.
(``test_gateway_kill`` kills them one by one.)
"""

import asyncio
import contextlib
from itertools import pairwise

import aiomqtt
import pytest

from federator.protocol.messages import json_codec, operators, topics
from lab.grid.processes.gateway import GatewayConfig, GatewayProcess
from tests.real.gateway.clients import V5, V311, GatewayClient, heard
from tests.real.plain_agents import Plain, eventually, linked
from tests.real.polling import DEADLINE_S, until_none

CLIENTS = 50
RATE_HZ = 20
BROKERS = (1, 2, 3, 4)
SILENCE_S_MAX = 5.0  # measured: 0.2 to 0.6 s
FLOW_S = 3.0
STANDSTILL_S = 1.5
"""Longer than a SUBACK waits for the federation."""


def heard_by(index):
    """Whom a client listens to."""
    return (index + 1) % CLIENTS, (index + 7) % CLIENTS


async def fifty(port, stack):
    """The clients, connected and subscribed."""
    clients = []
    for index in range(CLIENTS):
        client = GatewayClient(
            port,
            f"c{index}",
            version=V5 if index % 2 else V311,
            persistent=index % 4 < 2,
            subscribes=tuple(f"t/{other}" for other in heard_by(index)),
        )
        clients.append(await stack.enter_async_context(client))
    return clients


def listening(clients):
    """Each client and one it listens to."""
    return [(client, clients[n]) for index, client in enumerate(clients) for n in heard_by(index)]


def lost(clients, since):
    """What a subscriber did not get of what a publisher had acknowledged."""
    return [
        (client.client_id, payload)
        for client, other in listening(clients)
        for payload in other.acknowledged[since[other.client_id] :]
        if payload not in client.came
    ]


@pytest.fixture
async def federation(tmp_path):
    async with Plain(tmp_path) as plain:
        brokers = {id_: await plain.broker() for id_ in BROKERS}
        for id_ in BROKERS:
            earlier = [brokers[other].url for other in BROKERS if other < id_]
            agent = await plain.agent(id_, brokers[id_], *earlier)
        await eventually(agent, linked(1, 2, 3), "links")
        urls = {id_: broker.url for id_, broker in brokers.items()}
        config = GatewayConfig("gate", urls, federation="fed")
        async with GatewayProcess(tmp_path / "gateway", config) as gateway:
            yield brokers, plain.agents, gateway
        assert "Traceback" not in gateway.log_path.read_text()


@contextlib.asynccontextmanager
async def traffic(gateway):
    """The clients while they publish, and from which number on each is judged."""
    stop = asyncio.Event()
    async with contextlib.AsyncExitStack() as stack:
        clients = await fifty(gateway.port, stack)
        flows = [
            asyncio.create_task(client.publish(f"t/{index}", rate_hz=RATE_HZ, stop=stop))
            for index, client in enumerate(clients)
        ]
        since = await heard(listening(clients))
        await asyncio.sleep(1.0)  # traffic to be hurt
        yield clients
        await asyncio.sleep(FLOW_S)
        stop.set()
        await asyncio.gather(*flows)
        await until_none(lambda: lost(clients, since), "of what is acknowledged", poll_s=0.5)
        assert [client.client_id for client in clients if client.error] == []


def assert_no_silence(clients, since_s):
    """Everybody heard something again soon."""
    for client in clients:
        came_s = [s for s in client.at_s if s > since_s - 1]
        assert max(b - a for a, b in pairwise(came_s)) < SILENCE_S_MAX


def twice(clients):
    return sum(client.came.total() - len(client.came) for client in clients)


async def test_nobody_notices_that_all_brokers_but_one_are_killed_at_once(federation):
    brokers, _, gateway = federation
    async with traffic(gateway) as clients:
        killed_s = asyncio.get_running_loop().time()
        for id_ in (2, 3, 4):
            brokers[id_].kill9()

    assert_no_silence(clients, killed_s)
    # At most what was not safe yet: half a second of publications.
    assert twice(clients) <= CLIENTS * RATE_HZ * 2 * 0.5


async def drain(broker, by):
    async with aiomqtt.Client("127.0.0.1", by.port) as operator:
        word = json_codec.encode(operators.Drain(broker, drain=True))
        await operator.publish(topics.drain_topic("fed"), word)


async def at(gateway, broker):
    """How many clients are there."""
    return sum(row["broker"] == broker for row in (await gateway.clients()).values())


async def left(gateway, broker, *, at_most=0):
    """Wait until hardly anybody is there."""
    end_s = asyncio.get_running_loop().time() + DEADLINE_S
    while await at(gateway, broker) > at_most:
        assert asyncio.get_running_loop().time() < end_s, await gateway.clients()
        await asyncio.sleep(0.02)


async def test_a_broker_is_drained_and_nobody_notices_or_misses_anything(federation):
    brokers, _, gateway = federation
    async with traffic(gateway) as clients:
        drained_s = asyncio.get_running_loop().time()
        await drain(2, brokers[1])
        await left(gateway, 2)

    assert_no_silence(clients, drained_s)
    assert twice(clients) <= 2 * CLIENTS, "only what was on its way to both brokers comes twice"


@pytest.mark.full
async def test_agents_that_stand_still_during_the_moves_of_a_drain_cost_nothing(federation):
    """Then what is published long after a move is not known to be wanted at the new broker."""
    brokers, agents, gateway = federation
    async with traffic(gateway):
        there = await at(gateway, 2)
        await drain(2, brokers[1])
        await left(gateway, 2, at_most=there - 1)
        for agent in agents:
            agent.pause()
        await asyncio.sleep(STANDSTILL_S)
        for agent in agents:
            agent.resume()
        await left(gateway, 2)
