"""Leaves with two hubs: when one dies, the other serves them, and nobody misses anything.

Hubs 1, 2 and 3 are linked with each other. Leaf 11 prefers hub 1, and leaves 12 and 31 others; each
has hub 2 in reserve, or hub 1.
"""

import asyncio
import os
import signal
import time

import pytest

from tests.real.plain_agents import eventually, linked
from tests.real.polling import until
from tests.real.retained.retained_clients import client
from tests.real.streams import flowing, stream
from tests.real.undisturbed import tell

HUBS = (1, 2, 3)
LEAVES = {11: (1, 2), 12: (2, 1), 31: (3, 2)}
"""The preferred hub of each leaf, and the one in reserve."""

LOOKED_BACK_S = 7
"""What nobody was owed yet so long ago is not found again when a hub dies."""

RETURN_LOOKED_BACK_S = 17
"""Nor when a leaf returns to the hub that it prefers."""

GAP_MS_BAR = 1_000
"""Of ``script/attacks``: so long a leaf may hear nothing when its hub dies."""


WAYS = [(11, 31), (31, 11), (12, 11), (11, 3), (3, 11), (2, 11), (11, 2)]
"""From leaf to leaf, and to and from hubs."""


RETURN_AFTER_S = 8

RATE_HZ = 20
"""Of each stream: what waits at a hub for longer than is looked back would come late, and this is a
tenth of what two cores carry. By `federator-lab hub-death` it is 300 a second."""


class Grid:
    """The brokers and agents, by id."""

    def __init__(self, plain):
        self.plain = plain
        self.brokers, self.agents = {}, {}

    async def start(self, leaves=LEAVES, *, takes=()):
        """``takes``: leaves that hubs take besides, by hub."""
        self.leaves = leaves
        ids = (*HUBS, *leaves)
        found = await asyncio.gather(*(self.plain.broker() for _ in ids))
        self.brokers = dict(zip(ids, found, strict=True))
        for hub in HUBS:
            mine = [leaf for leaf, hubs in leaves.items() if hub in hubs]
            mine += dict(takes).get(hub, [])
            near = [(self.brokers[other].url, other) for other in HUBS if other < hub]
            more = "".join(f"[[leaves]]\nid = {leaf}\n" for leaf in mine)
            self.agents[hub] = await self.plain.agent(hub, self.brokers[hub], *near, more=more)
        for leaf, hubs in leaves.items():
            near = [(self.brokers[hub].url, hub) for hub in hubs]
            self.agents[leaf] = await self.plain.agent(
                leaf,
                self.brokers[leaf],
                *near,
                role="leaf",
                links={"return_after_s": RETURN_AFTER_S},
            )
        await self.stands()

    async def stands(self):
        for leaf, hubs in self.leaves.items():
            await eventually(self.agents[leaf], linked(*hubs), f"leaf {leaf} is linked")
            if len(hubs) > 1:
                await eventually(self.agents[leaf], served_by(hubs[0]), f"leaf {leaf} is served")
        for hub in HUBS:
            others = [each for each in HUBS if each != hub]
            await eventually(self.agents[hub], linked(*others), f"hub {hub} is linked")

    def parts(self, hub, *, agent, broker):
        return [p for p, dies in ((self.agents[hub], agent), (self.brokers[hub], broker)) if dies]

    def stream(self, giver, taker, *, qos=1, rate_hz=RATE_HZ):
        way = self.brokers[giver], self.brokers[taker], f"site/{giver}/to/{taker}"
        return stream(*way, name=f"{giver}-{taker}", qos=qos, rate_hz=rate_hz)


def served_by(hub):
    return lambda told: (told["hubs"] or {}).get("served_by") == hub


@pytest.fixture
async def grid(plain):
    grid = Grid(plain)
    await grid.start()
    return grid


DEATHS = {
    "the machine": {"agent": True, "broker": True},
    "the agent": {"agent": True, "broker": False},
    "the broker": {"agent": False, "broker": True},
}


@pytest.mark.parametrize("dies", DEATHS)
@pytest.mark.few(1)
async def test_a_hub_dies_and_the_other_one_serves_its_leaf(grid, dies):
    streams = [grid.stream(*way) for way in WAYS]
    parts = grid.parts(1, **DEATHS[dies])

    async with flowing(streams):
        await asyncio.sleep(LOOKED_BACK_S)
        killed_s = time.monotonic()
        for part in parts:
            part.kill9()
        await eventually(grid.agents[11], served_by(2), "the other hub serves")
        served_s = time.monotonic()
        for _, taker in streams:
            await until(lambda t=taker: t.at_s[-1] > served_s, "the other hub brings it")
        gap_s = max(t.longest_gap_s(killed_s, time.monotonic()) for _, t in streams)
        tell(row=f"{dies} of a hub dies", p99_ms=1_000 * gap_s, bars={"p99_ms": GAP_MS_BAR})
        for part in reversed(parts):
            await part.start()
        await eventually(grid.agents[11], served_by(1), "the leaf returned at leisure")
        await asyncio.sleep(3)
    for hub in (1, 2):
        for leaf in (await grid.agents[hub].status())["leaves"]:
            assert not any(leaf[key] for key in leaf if key.endswith("_refused")), leaf


async def test_a_hub_falls_silent_and_the_other_one_serves_its_leaf(grid):
    streams = [grid.stream(*way, qos=2) for way in WAYS[:3]]
    parts = grid.parts(1, agent=True, broker=True)

    async with flowing(streams):
        await asyncio.sleep(LOOKED_BACK_S)
        for part in parts:
            os.kill(part.pid, signal.SIGSTOP)
        await eventually(grid.agents[11], served_by(2), "the other hub serves")
        await asyncio.sleep(2)
        for part in parts:
            os.kill(part.pid, signal.SIGCONT)
        await eventually(grid.agents[11], served_by(1), "the leaf returned at leisure")
        await asyncio.sleep(2)


async def test_a_leaf_returns_when_it_is_told_to_and_no_value_is_set_back(grid):
    leaf = grid.agents[11]
    async with client(grid.brokers[31], "setter") as setter:
        await setter.set("plan/today", b"swim")
        async with client(grid.brokers[11], "taker", "plan/#") as taker:
            await until(lambda: ("plan/today", b"swim") in taker.came, "the value came")
            await asyncio.sleep(LOOKED_BACK_S)
            grid.agents[1].kill9()
            await eventually(leaf, served_by(2), "the other hub serves")
            await setter.set("plan/today", b"run")
            await until(lambda: ("plan/today", b"run") in taker.came, "the next one came")
            await asyncio.sleep(RETURN_LOOKED_BACK_S)  # what was set since then may come again
            await grid.agents[1].start()
            await eventually(leaf, linked(1, 2), "the hub is back")
            os.kill(leaf.pid, signal.SIGHUP)

            await eventually(leaf, served_by(1), "the leaf returned", deadline_s=RETURN_AFTER_S)
            await asyncio.sleep(2)
            # What the hub learnt by comparing, before it came on its way, bears no stamp, nor does
            # a value that it then repeats because the one on its way was older.
            came = [("plan/today", b"swim"), ("plan/today", b"run")]
            assert taker.came in (came, came + came[1:])


async def test_a_clients_own_stamp_is_taken_off(grid):
    forged = [("federator-stamp", "AAAA"), ("mine", "kept")]
    async with client(grid.brokers[3], "taker", "t") as taker:
        await asyncio.sleep(2)
        async with client(grid.brokers[11], "forger") as forger:
            await forger.set("t", b"x", user_properties=forged)
            await until(lambda: ("t", b"x") in taker.came, "it came")
    assert ("mine", "kept") in taker.properties
    assert ("federator-stamp", "AAAA") not in taker.properties
