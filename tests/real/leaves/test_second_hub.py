"""A leaf is given a second hub, or loses one: nothing is lost, and nothing comes again."""

import asyncio

import pytest

from tests.real.agent.test_reload import reload
from tests.real.leaves.test_reserve import LOOKED_BACK_S, Grid, served_by
from tests.real.plain_agents import eventually, linked
from tests.real.streams import flowing

NOTED_S = 11
"""A leaf that starts looks back from when it noted last that it was served."""

WAYS = [(11, 3), (3, 11), (11, 1), (2, 11)]


async def name(grid, *hubs, how):
    """Write these hubs into the configuration of leaf 11, and have it read."""
    leaf = grid.agents[11]
    leaf.config.neighbours = tuple((grid.brokers[hub].url, hub) for hub in hubs)
    if how == "restart":
        await leaf.stop()
        await leaf.start()
    else:
        await reload(leaf, "")


@pytest.mark.parametrize("how", ["restart", "reload"])
async def test_a_leaf_gets_a_second_hub(plain, how):
    grid = Grid(plain)
    await grid.start({11: (1,)}, takes={2: [11]})
    leaf = grid.agents[11]
    streams = [grid.stream(*way) for way in WAYS]

    async with flowing(streams):
        await asyncio.sleep(3)
        await name(grid, 1, 2, how=how)
        await eventually(leaf, linked(1, 2), "both are linked")
        await eventually(leaf, served_by(1), "the leaf is served")
        await asyncio.sleep(3)


@pytest.mark.parametrize("how", ["restart", "reload"])
@pytest.mark.few(1)
async def test_a_leaf_is_left_with_the_hub_that_did_not_serve_it(plain, how):
    grid = Grid(plain)
    await grid.start({11: (2, 1)})
    streams = [grid.stream(*way) for way in WAYS]

    async with flowing(streams):
        await asyncio.sleep(LOOKED_BACK_S + NOTED_S)
        await name(grid, 1, how=how)
        await eventually(grid.agents[11], linked(1), "one is linked")
        await asyncio.sleep(3)
