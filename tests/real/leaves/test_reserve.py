"""Leaves with two hubs: when one dies, the other serves them, and nobody misses anything.

Hubs 1, 2 and 3 are linked with each other. Leaf 11 prefers hub 1, and leaves 12 and 31 others; each
has hub 2 in reserve, or hub 1.
"""

import asyncio
import time

import pytest

from tests.real.flow import Publisher, Subscriber, running
from tests.real.plain_agents import eventually, linked
from tests.real.streams import all_came, begin, clients

HUBS = (1, 2, 3)
LEAVES = {11: (1, 2), 12: (2, 1), 31: (3, 2)}
"""The preferred hub of each leaf, and the one in reserve."""

LOOKED_BACK_S = 7
"""What nobody was owed yet so long ago is not found again when a hub dies."""

GAP_S = 10.0
"""Ten times what a leaf may hear nothing when its hub dies."""


WAYS = [(11, 31), (31, 11), (12, 11), (11, 3), (3, 11), (2, 11), (11, 2)]
"""From leaf to leaf, and to and from hubs."""


class Grid:
    """The brokers and agents, by id."""

    def __init__(self, plain):
        self.plain = plain
        self.brokers, self.agents = {}, {}

    async def start(self):
        ids = (*HUBS, *LEAVES)
        found = await asyncio.gather(*(self.plain.broker() for _ in ids))
        self.brokers = dict(zip(ids, found, strict=True))
        for hub in HUBS:
            mine = [leaf for leaf, hubs in LEAVES.items() if hub in hubs]
            near = [(self.brokers[other].url, other) for other in HUBS if other < hub]
            more = "".join(f"[[leaves]]\nid = {leaf}\n" for leaf in mine)
            self.agents[hub] = await self.plain.agent(hub, self.brokers[hub], *near, more=more)
        for leaf, hubs in LEAVES.items():
            near = [(self.brokers[hub].url, hub) for hub in hubs]
            self.agents[leaf] = await self.plain.agent(
                leaf, self.brokers[leaf], *near, role="leaf", links={"return_after_s": 5}
            )
        await self.stands()

    async def stands(self):
        for leaf, hubs in LEAVES.items():
            await eventually(self.agents[leaf], linked(*hubs), f"leaf {leaf} is linked")
            await eventually(self.agents[leaf], served_by(hubs[0]), f"leaf {leaf} is served")
        for hub in HUBS:
            others = [each for each in HUBS if each != hub]
            await eventually(self.agents[hub], linked(*others), f"hub {hub} is linked")

    async def kill(self, hub):
        """Kill a hub's broker and agent at once, as when its machine dies."""
        self.agents[hub].kill9()
        self.brokers[hub].kill9()

    async def revive(self, hub):
        await self.brokers[hub].start()
        await self.agents[hub].start()

    def stream(self, giver, taker, *, qos=1, rate_hz=100):
        topic = f"site/{giver}/to/{taker}"
        name = f"{giver}-{taker}"
        sender = Publisher(
            self.brokers[giver].port, topic, client_id=f"p-{name}", qos=qos, rate_hz=rate_hz
        )
        taker = Subscriber(self.brokers[taker].port, topic, client_id=f"s-{name}", qos=qos)
        return sender, taker


def served_by(hub):
    return lambda told: (told["hubs"] or {}).get("served_by") == hub


@pytest.fixture
async def grid(plain):
    grid = Grid(plain)
    await grid.start()
    return grid


async def test_a_hub_dies_and_the_other_serves_its_leaf(grid):
    streams = [grid.stream(*way) for way in WAYS]

    async with running(*clients(streams)):
        begun = await begin(streams)
        await asyncio.sleep(LOOKED_BACK_S)
        killed_s = time.monotonic()
        await grid.kill(1)
        await eventually(grid.agents[11], served_by(2), "the other hub serves")
        await asyncio.sleep(5)
        for _, taker in streams:
            assert taker.longest_gap_s(killed_s, killed_s + 5) < GAP_S
        await grid.revive(1)
        await eventually(grid.agents[11], served_by(1), "the leaf returned at leisure")
        await asyncio.sleep(3)

        await all_came(streams, begun)
