"""Links that arrange themselves, and one broker that only dials, and names whom."""

import asyncio

from tests.real.agent_log import named
from tests.real.flow import running
from tests.real.links.test_outbox import NOWHERE
from tests.real.plain_agents import eventually, linked
from tests.real.streams import begin, clients, stream

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


async def test_a_broker_that_only_dials_chooses_whom_and_another_when_one_dies(plain):
    """Nobody dials it, nor waits for it on a ring; whom it dials it knows by one seed."""
    brokers = dict(zip((2, 3, 4, 5), [await plain.broker() for _ in range(4)], strict=True))
    agents = {
        id_: await plain.agent(id_, at, more=AUTO.format(seed=brokers[3 if id_ == 2 else 2].url))
        for id_, at in brokers.items()
    }
    for id_, agent in agents.items():
        await eventually(agent, linked(*(brokers.keys() - {id_})), "the others are linked")
    home = await plain.broker()
    told = {"broker": {"advertise": NOWHERE}, "links": {"dial": "out"}}
    site = await plain.agent(1, home, more=AUTO.format(seed=brokers[3].url), **told)

    await eventually(site, linked(2, 3, 4, 5), "it links with all that there are")
    await asyncio.sleep(STAYS_S / 2)
    for agent in (site, *agents.values()):
        told = await agent.status()
        assert {link["state"] for link in told["links"]} == {"up"}
        assert not named(agent, "topology.link_given_up")
    brokers[3].kill9()
    await eventually(site, linked(2, 4, 5), "the others stay")
    streams = [stream(brokers[5], home, "a/b", "a/#", name="in", qos=1)]
    streams += [stream(home, brokers[2], "b/c", "b/#", name="out", qos=1)]
    async with running(*clients(streams)):
        await begin(streams)

    for id_ in (2, 4, 5):
        links = {link["neighbour"]: link for link in (await agents[id_].status())["links"]}
        assert links[1]["state"] == "up"
        assert links[1]["dialled"] == "by it alone"
