"""A broker that refuses a value lacks it, and no other broker loses it for that."""

import asyncio

import pytest

from tests.real.plain_agents import eventually, linked
from tests.real.polling import until
from tests.real.retained.retained_clients import client

LONG = b"x" * 200_000
RESYNC = "[retained]\nresync_s = 2"
COMPARISONS_S = 12
"""Some, after which what a broker lacks was taken for a delete."""

COMPARISONS = 3
FETCHED_MAX = 2
"""The short value, and the long one, which is refused."""


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("limit", ["message_size_limit", "max_packet_size"])
@pytest.mark.few(2)
async def test_what_one_broker_does_not_take_stays_at_the_others(plain, limit, qos):
    first, narrow, third = (
        await plain.broker(),
        await plain.broker(extra_config=(f"{limit} 100000",)),
        await plain.broker(),
    )
    await plain.agent(1, first, more=RESYNC)
    two = await plain.agent(2, narrow, first.url, more=RESYNC)
    three = await plain.agent(3, third, first.url, more=RESYNC)
    for agent in (two, three):
        await eventually(agent, linked(1), "linked")
    async with (
        client(first, "setter") as setter,
        client(narrow, "narrow", "v/#") as at_narrow,
        client(third, "third", "v/#") as at_third,
    ):
        await setter.set("v/long", LONG, qos=qos)
        await setter.set("v/short", b"y")
        await until(lambda: ("v/short", b"y") in at_narrow.came, "the short one comes")
        await until(lambda: ("v/long", LONG) in at_third.came, "the long one comes elsewhere")
        await asyncio.sleep(COMPARISONS_S)
        retained = (await two.status())["retained"]

        for broker in (first, third):
            async with client(broker, "late", "v/#") as late:
                await until(lambda c=late: ("v/short", b"y") in c.came, "what is retained comes")
                await until(lambda c=late: ("v/long", LONG) in c.came, "the long one is there")
    assert ("v/long", b"") not in at_third.came
    assert retained["rounds"] >= COMPARISONS
    if qos or limit == "max_packet_size":  # else Mosquitto drops a value in silence
        assert retained["values_fetched"] <= FETCHED_MAX
