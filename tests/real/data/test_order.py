"""What one publisher sends in turn on several topics arrives in turn, through real brokers.

A bridge keeps that order, and clients count on it: a Sparkplug B host takes each step back of a
node's sequence for a loss, and a death that comes behind the following birth for the last word.
"""

import asyncio
import contextlib
import itertools
import random
from itertools import pairwise

import mqtt5
import pytest

from federator.protocol.types import BrokerId
from lab.grid.running import RunningGrid
from lab.grid.topology import Grid, Link
from tests.real.client import Client
from tests.real.plain_agents import QUICK
from tests.real.polling import until

FIRST, LAST = BrokerId(0), BrokerId(3)
NODES, FLAPS = 6, 8
UNBOUNDED = ("max_inflight_messages 0",)
"""For brokers: else they let QoS 0 pass QoS 1 where a busy agent has 20 to acknowledge."""


@contextlib.asynccontextmanager
async def running(*clients):
    """These clients, connected and subscribed."""
    tasks = [asyncio.create_task(client.link.run()) for client in clients]
    try:
        await until(lambda: all(each.link.subscribed for each in clients), "all are connected")
        yield
    finally:
        for client in clients:
            await client.link.close()
        await asyncio.gather(*tasks)


@contextlib.asynccontextmanager
async def line(folder, *, direct=False, strategy="mesh"):
    options = {"routing": {"strategy": strategy}}
    async with RunningGrid(
        Grid(1, LAST + 1, 0),
        folder,
        link_delay_ms=0,
        broker_options=(*QUICK, *UNBOUNDED),
        agent_options=options,
        direct=direct,
    ) as grid:
        yield grid


async def meshes_stand(publisher, subscriber, topics):
    """Publish on each of ``topics`` until all of them reach the subscriber."""

    async def came():
        for topic in topics:
            publisher.link.publish(topic, b"probe")
        await asyncio.sleep(0.1)
        return {topic for topic, _ in subscriber.came} >= set(topics)

    while not await came():
        pass
    sent = [publisher.link.publish(topic, b"last", qos=1) for topic in topics]
    await until(
        lambda: sum(word == b"last" for _, word in subscriber.came) == len(sent), "probes came"
    )


@pytest.mark.parametrize(
    ("direct", "strategy"), [(False, "mesh"), (True, "mesh"), (True, "shortest-path")]
)
@pytest.mark.few(1)
async def test_bursts_on_two_topics_arrive_in_order_three_links_away(tmp_path, direct, strategy):
    numbers = itertools.count()
    async with line(tmp_path, direct=direct, strategy=strategy) as grid:
        subscriber = Client(grid.brokers[LAST].port, "subscriber", "a/#", "b/#")
        publisher = Client(grid.brokers[FIRST].port, "publisher")
        async with running(subscriber, publisher):
            await meshes_stand(publisher, subscriber, ["a/x", "b/x"])
            for qos_of_pairs in ((0, 0), (1, 1), (0, 1), (1, 0)):
                for burst in (2, 10):
                    subscriber.came.clear()
                    sent = []
                    for _ in range(15):
                        for qos in qos_of_pairs * (burst // 2):
                            sent.append(str(next(numbers)))
                            topic = f"{'ab'[len(sent) % 2]}/x"
                            publisher.link.publish(topic, sent[-1].encode(), qos=qos)
                        await asyncio.sleep(0.01)
                    count = len(sent)
                    await until(lambda count=count: len(subscriber.came) >= count, "all came")

                    assert [word.decode() for _, word in subscriber.came] == sent


async def test_a_sparkplug_host_sees_no_sequence_broken_but_by_loss(tmp_path):
    """Nodes that vanish and come again, and a link that is cut: births, data, deaths in order."""
    chance = random.Random(38)
    async with line(tmp_path) as grid:
        kinds = ("NBIRTH", "NDATA", "NDEATH")
        host = Client(grid.brokers[LAST].port, "host", *(f"sp/+/{kind}/#" for kind in kinds))
        probe = Client(grid.brokers[FIRST].port, "probe")
        async with running(host, probe):
            await meshes_stand(probe, host, [f"sp/g/{kind}/probe" for kind in kinds])
            ports = [grid.brokers[BrokerId(at % 2)].port for at in range(NODES)]
            lives = (node_lives(port, at, chance) for at, port in enumerate(ports))
            cut = asyncio.create_task(cut_once(grid))
            await asyncio.gather(*lives, cut)
            await until(lambda: deaths_in(host) == NODES * FLAPS, "every death came")

        words = [tuple(map(int, w.split())) for t, w in host.came if "probe" not in t]
        for node in range(NODES):
            steps = [step for its, step in words if its == node]
            late = [b for a, b in pairwise(steps) if b <= a]
            # A death that waited at its origin while the link was cut; what was at QoS 0 is lost.
            assert [b for b in late if {b - 1, b + 1} <= set(steps)] == []


async def node_lives(port, node, chance):
    """A node that is born, sends data, vanishes, and is born again: each message counted."""
    steps = itertools.count(1)
    for _ in range(FLAPS):
        death = next(steps) + 10  # sent last of all
        topic = f"sp/g/NDEATH/{node}"
        will = mqtt5.Will(topic=topic, payload=f"{node} {death}".encode(), qos=mqtt5.QoS(1))
        client = Client(port, f"node-{node}", will=will)
        async with running(client):
            client.link.publish(f"sp/g/NBIRTH/{node}", f"{node} {next(steps)}".encode())
            while (step := next(steps)) < death:
                client.link.publish(f"sp/g/NDATA/{node}", f"{node} {step}".encode())
                await asyncio.sleep(chance.uniform(0, 0.02))
            code = mqtt5.DisconnectReasonCode.DISCONNECT_WITH_WILL_MESSAGE
            client.link.write_packets([mqtt5.DisconnectPacket(reason_code=code).write()], 1)
            await client.link.close()


async def cut_once(grid):
    await asyncio.sleep(0.3)
    await grid.order("cut", Link(BrokerId(1), BrokerId(2)))
    await asyncio.sleep(1)
    await grid.order("heal", Link(BrokerId(1), BrokerId(2)))


def deaths_in(host):
    return sum("NDEATH" in topic and "probe" not in topic for topic, _ in host.came)
