"""Brokers that join through one seed and arrange their links among themselves."""

import asyncio

import pytest

from federator.protocol.topology.graph import near_of, strength_of
from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import Plain, gets_through
from tests.real.polling import POLL_S

GRID_S = 120.0
"""For twelve brokers and agents on two slow cores."""

TWELVE = 12
QUICKLY = "settle_ms = 2000\npatience_ms = 2000\nmeasure_ms = 1000\n"


@pytest.fixture
async def plain(tmp_path):
    async with Plain(tmp_path) as made:
        yield made


def auto(*seeds, neighbours=6):
    named = ", ".join(f'"{seed.url}"' for seed in seeds)
    return f'[topology]\nmode = "auto"\nseeds = [{named}]\nneighbours = {neighbours}\n{QUICKLY}'


async def graph_of(agents):
    """What all agents agree that the graph is, or ``None``."""
    pages = await asyncio.gather(*(agent.page("/topology") for agent in agents))
    told = {(str(page["links"]), str([b["broker"] for b in page["brokers"]])) for page in pages}
    if len(told) > 1:
        return None
    return near_of([b["broker"] for b in pages[0]["brokers"]], map(tuple, pages[0]["links"]))


async def settles(agents, *, neighbours=6):
    """Wait until all agree on a graph of all that survives any single death."""
    end_s = asyncio.get_running_loop().time() + GRID_S
    wanted = min(neighbours, len(agents) - 1)
    found = None
    while asyncio.get_running_loop().time() < end_s:
        graph = await graph_of(agents)
        if graph is not None:
            found = strength_of(graph)
            whole = found.brokers == len(agents) and found.survives_any_death
            if whole and wanted - 1 <= found.degree_min <= found.degree_max <= neighbours + 1:
                return graph
        await asyncio.sleep(10 * POLL_S)
    raise AssertionError(f"not settled within {GRID_S} s: {found}")


async def test_twelve_join_by_one_seed_and_mend_when_one_dies(plain):
    brokers = [await plain.broker() for _ in range(TWELVE)]
    agents = [
        await plain.agent(id, broker, more=auto(*brokers[:1])) for id, broker in enumerate(brokers)
    ]
    graph = await settles(agents)
    assert len(graph) == TWELVE

    there = Subscriber(brokers[7].port, "forth/#", client_id="there")
    here = Publisher(brokers[3].port, "forth/1", client_id="here")
    async with running(there, here):
        await gets_through(here, there)

        agents[0].kill9()
        brokers[0].kill9()
        mended = await settles(agents[1:])

        assert set(mended) == set(range(1, TWELVE))
        await gets_through(here, there)
        assert there.duplicates == 0
