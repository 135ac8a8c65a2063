"""A broker that nobody can connect to is a member like any other: its agent dials, and hears."""

import asyncio

import pytest

from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import eventually, gets_through, linked
from tests.real.polling import until

NOWHERE = "mqtt://127.0.0.1:1"
"""What a broker behind NAT says of itself is no use elsewhere."""


@pytest.fixture
async def pair(plain):
    """Brokers 1, whose agent alone dials, and 2, and their agents, linked."""
    inside, outside = await asyncio.gather(plain.broker(), plain.broker())
    hub = await plain.agent(2, outside)
    site = await plain.agent(
        1, inside, outside.url, broker={"advertise": NOWHERE}, links={"dial": "out"}
    )
    await eventually(site, linked(2), "linked")
    await eventually(hub, linked(1), "linked")
    return inside, outside


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_publications_cross_both_ways_once_and_in_order(pair, qos):
    inside, outside = pair
    out = Publisher(inside.port, "from/site", client_id="out", qos=qos, rate_hz=300)
    back = Publisher(outside.port, "from/hub", client_id="back", qos=qos, rate_hz=300)
    at_hub = Subscriber(outside.port, "from/site", client_id="at-hub", qos=qos)
    at_site = Subscriber(inside.port, "from/hub", client_id="at-site", qos=qos)

    async with running(out, back, at_hub, at_site):
        await gets_through(out, at_hub)
        await gets_through(back, at_site)
        begun = out.sent, back.sent
        await asyncio.sleep(2)
        out.pause()
        back.pause()
        for sender, taker, first in ((out, at_hub, begun[0]), (back, at_site, begun[1])):
            await until(
                lambda s=sender, t=taker, f=first: set(range(f, s.sent)) <= set(t.came), "all came"
            )
            assert taker.duplicates == 0
            assert taker.order == sorted(taker.order)
