"""Brokers that join through one seed and arrange their links among themselves."""

import math

import pytest

from federator.protocol.types import BrokerId
from lab.grid.running import JoinedGrid
from tests.real.agent_log import named
from tests.real.flow import running
from tests.real.metrics_page import metrics, values
from tests.real.plain_agents import gets_through
from tests.real.streams import stream

TWELVE = 12


@pytest.mark.timeout(600)
async def test_twelve_join_by_one_seed_and_mend_when_it_dies(tmp_path):
    async with JoinedGrid(TWELVE, tmp_path) as grid:
        joined = await grid.settled()
        assert joined.brokers == TWELVE
        assert joined.diameter <= 2 * math.log2(TWELVE)

        here, there = stream(grid.brokers[BrokerId(3)], grid.brokers[BrokerId(7)], "a/b", "a/#")
        async with running(there, here):
            await gets_through(here, there)

            page = await metrics(grid.agents[BrokerId(5)].http)
            assert values(page, "federator_topology_brokers")[""] == TWELVE
            assert values(page, "federator_topology_links")[""] >= TWELVE
            assert values(page, "federator_neighbours_wanted")[""] >= 2

            grid.kill(BrokerId(0))
            mended = await grid.settled()

            assert mended.brokers == TWELVE - 1
            await gets_through(here, there)
            assert there.duplicates == 0
        for agent in grid.agents.values():
            assert "Traceback" not in agent.log_path.read_text()
            assert not named(agent, "trust.refused")
            assert not named(agent, "topology.place_refused")
