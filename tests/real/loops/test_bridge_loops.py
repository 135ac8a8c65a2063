"""A plain Mosquitto bridge beside two federated brokers. docs/rules.md."""

import asyncio
import time
from collections import Counter

import pytest

from federator.cli.observe.status import as_text
from tests.real.agent_log import named
from tests.real.client import Client
from tests.real.flow import running
from tests.real.metrics_page import metrics
from tests.real.plain_agents import QUICK, Plain, eventually
from tests.real.polling import DEADLINE_S, POLL_S, until

TOPICS = 5
LATER = 100
FRESH = 20
COPIES_MAX = 31
"""Of a first publication on a new topic, once the bridge is known; each agent's tests let go some,
and on a machine with more to do a test may fail and be done again."""


class Counting(Client):
    """Subscribes ``t/#`` at one broker and publishes there; counts what comes."""

    def __init__(self, broker, name, *, qos):
        super().__init__(broker.port, name, "t/#", qos=qos)
        self.came = Counter()
        self.qos = qos

    def publish(self, topic, payload):
        self.link.publish(topic, payload, qos=self.qos)

    def on_publishes(self, link, chunk, publishes):
        self.came.update((packet.topic, bytes(packet.payload)) for packet, _, _ in publishes)


def loops(wanted):
    return lambda status: wanted(status["loops"])


def listens(status):
    """It is linked and reads its broker's log: a client that comes now is heard."""
    up = any(link["state"] == "up" for link in status["links"])
    return status["ready"] and up and status["discovery"]["counted"] > 0


def knows_the_way(status):
    return any(m["filter"] == "t/#" and m["local"] for m in status["meshes"]) and any(
        link["state"] == "up" for link in status["links"]
    )


def asks_for_all(status):
    """As where clients, or a bridge, were there before the agent."""
    up = any(link["state"] == "up" for link in status["links"])
    return up and any(m["filter"] == "#" and m["next_hops"] for m in status["meshes"])


def all_found(statuses):
    return all(status["loops"]["broken_total"] >= TOPICS for status in statuses)


async def open_way(publisher, subscriber, payload):
    """Probe until the federation, or a bridge, carries ``t/probe``."""
    async with asyncio.timeout(DEADLINE_S):
        while not subscriber.came["t/probe", payload]:
            publisher.publish("t/probe", payload)
            await asyncio.sleep(0.05)


async def storm_ends(agents, clients):
    """Wait until nothing moves any more, and return what every client has got."""
    before = None
    end_s = time.monotonic() + 3 * DEADLINE_S
    while time.monotonic() < end_s:
        for agent in agents:
            await eventually(agent, loops(lambda x: x["suspects"] == 0), "nothing is in doubt")
        now = [client.came.total() for client in clients]
        if now == before:
            return now
        before = now
        await asyncio.sleep(50 * POLL_S)
    raise AssertionError("the storm goes on")


async def all_get(clients, numbered):
    """Publications ``numbered``, alternately from both sides, and once each is everywhere."""
    for number in numbered:
        clients[number % 2].publish(f"t/{number % TOPICS}", b"%d" % number)
        await asyncio.sleep(POLL_S)
    wanted = {(f"t/{number % TOPICS}", b"%d" % number) for number in numbered}
    await until(lambda: all(wanted <= set(c.came) for c in clients), "everybody gets everything")
    return wanted


@pytest.mark.parametrize("qos", [0, 1])
async def test_a_forgotten_bridge_is_told_its_loop_broken_and_all_well_without_it(tmp_path, qos):
    async with Plain(tmp_path) as plain:
        far = await plain.broker()
        bridge = ("connection forgotten", f"address {far.host}:{far.port}", f"topic # both {qos}")
        near = await plain.broker(extra_config=(*QUICK, *bridge))
        agents = [await plain.agent(1, near), await plain.agent(2, far, near.url)]
        clients = [Counting(near, "near", qos=qos), Counting(far, "far", qos=qos)]
        for agent in agents:
            await eventually(agent, listens, "linked and listening")
        async with running(*clients):
            for agent in agents:
                await eventually(agent, knows_the_way, "linked, and the filter known")
                await eventually(agent, loops(lambda x: x["bridges"]), "the bridge is seen")

            async with asyncio.timeout(10 * DEADLINE_S):
                while not all_found(await told(agents)):
                    for number in range(TOPICS):
                        clients[0].publish(f"t/{number}", b"round and round")
                    await asyncio.sleep(1.0)
            await storm_ends(agents, clients)

            wanted = await all_get(clients, range(LATER))
            await storm_ends(agents, clients)
            copies = [client.came[each] for client in clients for each in wanted]
            assert max(copies) <= 4
            for agent, status in zip(agents, await told(agents), strict=True):
                assert status["loops"]["dropped"] >= LATER / 2
                assert len(named(agent, "bridge.loop")) == 1
                assert "LOOP BROKEN" in "\n".join(as_text(status))
                assert f"federator_bridge_loops {TOPICS}" in await metrics(agent.http)

            fresh = {(f"t/fresh/{number}", b"once") for number in range(FRESH)}
            for number, (topic, payload) in enumerate(sorted(fresh)):
                clients[number % 2].publish(topic, payload)
                await asyncio.sleep(POLL_S)
            await until(lambda: all(fresh <= set(c.came) for c in clients), "all are everywhere")
            await storm_ends(agents, clients)
            assert max(client.came[each] for client in clients for each in fresh) <= COPIES_MAX

            near._extra_config = QUICK  # somebody remembered
            await near.restart()
            for agent in agents:
                gone = loops(lambda x: not x["bridges"] and not x["broken"] and not x["watching"])
                await eventually(agent, gone, "the bridge is forgotten")
                await eventually(agent, knows_the_way, "linked again")
                assert len(named(agent, "bridge.loop_over")) == 1
            await until(lambda: all(c.link.subscribed for c in clients), "clients are back")
            await open_way(clients[0], clients[1], b"to far")
            await open_way(clients[1], clients[0], b"to near")

            wanted = await all_get(clients, range(LATER, 2 * LATER))
            await storm_ends(agents, clients)
            assert {client.came[each] for client in clients for each in wanted} == {1}


async def test_a_bridge_that_says_nothing_and_was_there_before_is_found_and_its_loop_broken(
    tmp_path,
):
    async with Plain(tmp_path) as plain:
        far = await plain.broker()
        bridge = ("connection silent", f"address {far.host}:{far.port}", "topic # both 0")
        near = await plain.broker(extra_config=(*QUICK, *bridge, "notifications false"))
        clients = [Counting(near, "near", qos=0), Counting(far, "far", qos=0)]
        async with running(*clients):
            await open_way(clients[0], clients[1], b"by the bridge")
            agents = [await plain.agent(1, near), await plain.agent(2, far, near.url)]
            for agent in agents:
                await eventually(agent, asks_for_all, "linked, and its broker's clients in doubt")
            assert [s["loops"]["bridges"] for s in await told(agents)] == [[], []]

            for number in range(TOPICS):
                clients[0].publish(f"t/{number}", b"round and round")
            for agent in agents:
                found = loops(lambda x: x["broken_total"] >= TOPICS)
                await eventually(agent, found, "its loops are found", deadline_s=5 * DEADLINE_S)
            await storm_ends(agents, clients)

            wanted = await all_get(clients, range(LATER))
            await storm_ends(agents, clients)
            assert max(client.came[each] for client in clients for each in wanted) <= 4
            for agent, status in zip(agents, await told(agents), strict=True):
                assert len(named(agent, "bridge.loop")) == 1
                assert "LOOP BROKEN" in "\n".join(as_text(status))


async def test_a_bridge_that_leads_elsewhere_disturbs_nothing(tmp_path):
    async with Plain(tmp_path) as plain:
        elsewhere = await plain.broker()
        far = await plain.broker()
        address = f"address {elsewhere.host}:{elsewhere.port}"
        near = await plain.broker(
            extra_config=(*QUICK, "connection cloud", address, "topic # both 1")
        )
        agents = [await plain.agent(1, near), await plain.agent(2, far, near.url)]
        clients = [Counting(near, "near", qos=1), Counting(far, "far", qos=1)]
        for agent in agents:
            await eventually(agent, listens, "linked and listening")
        async with running(*clients):
            for agent in agents:
                await eventually(agent, knows_the_way, "linked, and the filter known")
            await eventually(agents[0], loops(lambda x: x["bridges"]), "the bridge is seen")
            await open_way(clients[0], clients[1], b"to far")

            for _ in range(LATER):
                clients[0].publish("t/sensor", b"21.5")
                await asyncio.sleep(POLL_S)
            await until(lambda: clients[1].came["t/sensor", b"21.5"] == LATER, "all arrive, once")

            assert [s["loops"]["broken_total"] for s in await told(agents)] == [0, 0]
            assert len(named(agents[0], "bridge.found")) == 1
            assert len(named(agents[0], "bridge.loop")) == 0


async def told(agents):
    return [await agent.status() for agent in agents]
