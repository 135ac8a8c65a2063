"""A retained value of megabytes comes to those who subscribe after it was set."""

import pytest

from tests.real.plain_agents import eventually, linked
from tests.real.polling import until
from tests.real.retained.retained_clients import client

LONG = bytes(range(256)) * 12_000
OTHER = LONG[::-1]


@pytest.mark.parametrize("qos", [0, 1])
async def test_who_comes_late_gets_a_value_of_three_megabytes(plain, qos):
    first, middle, last = [await plain.broker() for _ in range(3)]
    await plain.agent(1, first)
    between = await plain.agent(2, middle, first.url)
    end = await plain.agent(3, last, middle.url)
    for agent, neighbours in ((between, (1, 3)), (end, (2,))):
        await eventually(agent, linked(*neighbours), "linked")
    async with client(first, "setter") as setter:
        await setter.set("v/before", b"1")
        await setter.set("v/long", LONG, qos=qos)
        await setter.set("v/short", b"2")

        async with client(last, "late", "v/#") as late:
            for topic, payload in (("v/before", b"1"), ("v/short", b"2"), ("v/long", LONG)):
                await until(lambda t=(topic, payload): t in late.came, f"{topic} comes")
            await setter.set("v/long", OTHER, qos=qos)
            await until(lambda: ("v/long", OTHER) in late.came, "a new one comes as ever")
