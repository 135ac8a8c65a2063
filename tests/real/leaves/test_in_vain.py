"""What a bounded cover brings beside what is wanted is counted, to the byte."""

import asyncio

import pytest
from mqtt5 import PublishPacket, QoS

from tests.real.flow import running
from tests.real.leaves.test_hub import grid_of
from tests.real.metrics_page import metrics, values
from tests.real.polling import until
from tests.real.retained.retained_clients import client
from tests.real.streams import all_came, begin

QUIET_S = 1.5
WANTED = [f"site/11/{name}" for name in "abcdef"]


def size_of(topic, payload):
    """Of the packet, as agents hand it to a broker."""
    return len(PublishPacket(topic, payload, qos=QoS.AT_LEAST_ONCE, packet_id=1).write())


async def settled(hub, side):
    """What the hub has counted of ``side``, once nothing of former times comes any more."""
    told, before = (await hub.status())["hub"][side], None
    while told != before:
        await asyncio.sleep(QUIET_S)
        before, told = told, (await hub.status())["hub"][side]
    return told


@pytest.mark.parametrize("giver", [2, 12])
async def test_a_hub_counts_what_was_brought_and_nobody_wanted(plain, giver):
    grid = await grid_of(plain, hub="[hub]\nfilters_max = 12\n")
    hub, side = grid.agents[1], "mesh" if giver == 2 else "leaves"
    sender, taker = grid.stream(giver, 11, topic=WANTED[0])

    async with (
        client(grid.brokers[11], "many", *WANTED[1:]) as many,
        client(grid.brokers[giver], "giver") as publisher,
        running(sender, taker),
    ):
        begun = await begin([(sender, taker)])
        await all_came([(sender, taker)], begun)
        before = await settled(hub, side)
        for n in range(30):
            publisher.link.publish("site/11/unwanted", b"vain%d" % n, qos=1)
            publisher.link.publish(WANTED[1], b"wanted", qos=1)
        await until(lambda: len(many.came) >= 30, "what is wanted came")

        after = await settled(hub, side)
        page = await metrics(hub.http)

    grown = {key: after[key] - before[key] for key in after}
    vain = sum(size_of("site/11/unwanted", b"vain%d" % n) for n in range(30))
    assert grown == {
        "publications": 60,
        "bytes": vain + 30 * size_of(WANTED[1], b"wanted"),
        "in_vain": 30,
        "bytes_in_vain": vain,
    }
    for key, told in (("in_vain", "in_vain"), ("brought", "publications")):
        found = values(page, f"federator_hub_publications_{key}_total")
        assert found[f'side="{side}"'] == after[told]
