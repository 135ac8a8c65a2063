"""Links that arrange themselves, and one broker that only dials, and names whom."""

import asyncio

from tests.real.links.test_outbox import NOWHERE
from tests.real.plain_agents import eventually, linked

AUTO = '[topology]\nmode = "auto"\nseeds = ["{seed}"]\nsettle_ms = 1000\n'
STAYS_S = 20.0
"""Several reviews of links."""


async def test_a_broker_that_only_dials_is_linked_with_those_it_names_and_stays_so(plain):
    one, two, three = await asyncio.gather(plain.broker(), plain.broker(), plain.broker())
    await plain.agent(2, two, more=AUTO.format(seed=three.url))
    await plain.agent(3, three, more=AUTO.format(seed=two.url))
    site = {"broker": {"advertise": NOWHERE}, "links": {"dial": "out"}}
    await plain.agent(1, one, two.url, three.url, **site)

    for agent, others in zip(plain.agents, ([1, 3], [1, 2], [2, 3]), strict=True):
        await eventually(agent, linked(*others), "all are linked")
    await asyncio.sleep(STAYS_S)

    for agent in plain.agents:
        told = (await agent.status())["links"]
        assert {link["state"] for link in told} == {"up"}
    plain.assert_calm()
