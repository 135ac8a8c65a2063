"""Leaves on two hubs: clients of any of their brokers are as if they were at one.

Hubs 1 and 2 are linked; leaves 11 and 12 hang on hub 1, leaf 21 on hub 2, and leaf 22, which its
hub dials, too.
"""

import asyncio
import os
import signal
import time

import pytest

from tests.real.flow import Subscriber, running
from tests.real.plain_agents import eventually, gets_through, linked
from tests.real.polling import until
from tests.real.retained.retained_clients import client
from tests.real.streams import begin, clients, flowing, stream

FIRST_S = 0.5
"""Ten times what a first publication may take after a SUBSCRIBE, from leaf to leaf."""

LEAVES = {11: 1, 12: 1, 21: 2, 22: 2}


class Grid:
    """The brokers and agents, by id."""

    def __init__(self, brokers, agents):
        self.brokers, self.agents = brokers, agents

    def port(self, id):
        return self.brokers[id].port

    def stream(self, giver, taker, *, topic=None, qos=1, rate_hz=100):
        """A publisher and a subscriber, whose session lasts, at two brokers."""
        name = f"{giver}-{taker}-{(topic or '').replace('/', '-')}"
        way = self.brokers[giver], self.brokers[taker], topic or f"site/{giver}/to/{taker}"
        return stream(*way, name=name, qos=qos, rate_hz=rate_hz)


def all_leaves_up(*ids):
    return lambda told: [leaf["id"] for leaf in told["leaves"] if leaf["up"]] == sorted(ids)


async def grid_of(plain, *, hub=""):
    """All brokers and agents, linked; ``hub`` is more of the hubs' configuration."""
    ids = (1, 2, *LEAVES)
    brokers = dict(zip(ids, await asyncio.gather(*(plain.broker() for _ in ids)), strict=True))
    agents = {}
    for hub_id in (1, 2):
        mine = [leaf for leaf, at in LEAVES.items() if at == hub_id]
        more = hub + "".join(f"[[leaves]]\nid = {leaf}\n" for leaf in mine)
        if hub_id == 2:
            more += f'url = "{brokers[22].url}"\n'
        near = [(brokers[1].url, 1)] if hub_id == 2 else []
        agents[hub_id] = await plain.agent(hub_id, brokers[hub_id], *near, more=more)
    for leaf, at in LEAVES.items():
        links = {"dial": "both"} if leaf == 22 else {}
        agents[leaf] = await plain.agent(
            leaf, brokers[leaf], (brokers[at].url, at), role="leaf", links=links
        )
    for leaf, at in LEAVES.items():
        await eventually(agents[leaf], linked(at), f"leaf {leaf} is linked")
    await eventually(agents[1], linked(2), "hub 1 is linked")
    await eventually(agents[2], linked(1), "hub 2 is linked")
    await eventually(agents[1], all_leaves_up(11, 12), "hub 1 hears its leaves")
    await eventually(agents[2], all_leaves_up(21, 22), "hub 2 hears its leaves")
    return Grid(brokers, agents)


@pytest.fixture
async def grid(plain):
    return await grid_of(plain)


WAYS = [(11, 21), (21, 12), (11, 12), (11, 2), (1, 11), (22, 11), (2, 22), (12, 1)]
"""From leaf to leaf of another hub and of the same, to and from hubs near and far."""


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.few(1)
async def test_publications_cross_hubs_once_and_in_order(grid, qos):
    streams = [grid.stream(*way, qos=qos, rate_hz=50) for way in WAYS]

    async with flowing(streams):
        await asyncio.sleep(2)
    for leaf in LEAVES:
        told = await grid.agents[leaf].status()
        assert told["ready"]
        assert [k["neighbour"] for k in told["links"]] == [LEAVES[leaf]]


async def test_what_a_leaf_publishes_does_not_come_back_to_it(grid):
    sender, _ = grid.stream(11, 21)
    at_home = Subscriber(grid.port(11), "site/11/#", client_id="at-home", qos=1)
    nearby = Subscriber(grid.port(12), "site/+/to/+", client_id="nearby", qos=1)

    async with running(sender, at_home, nearby):
        await gets_through(sender, at_home, nearby)
        first = sender.sent
        await asyncio.sleep(1)
        sender.pause()
        for taker in (at_home, nearby):
            await until(lambda t=taker: set(range(first, sender.sent)) <= set(t.came), "all came")
        await asyncio.sleep(1)
        assert at_home.duplicates == nearby.duplicates == 0


async def test_the_first_publication_after_a_subscribe_comes_soon(grid):
    delays_s = []
    for number in range(5):
        sender, taker = grid.stream(11, 21, topic=f"fresh/{number}", qos=0, rate_hz=200)
        async with running(sender):
            await asyncio.sleep(0.2)
            async with running(taker):
                await until(lambda t=taker: t.link.subscribed, "the broker granted it")
                granted_s = time.monotonic()
                await until(lambda t=taker: bool(t.at_s), "a publication came")
                delays_s.append(taker.at_s[0] - granted_s)

    assert sorted(delays_s)[2] < FIRST_S


@pytest.mark.parametrize("frozen", [11, 21, 1])
@pytest.mark.few(1)
async def test_who_is_away_for_a_while_misses_nothing(grid, frozen):
    streams = [grid.stream(*way) for way in ((11, 21), (21, 11), (11, 12))]

    async with flowing(streams):
        await asyncio.sleep(5)
        os.kill(grid.agents[frozen].pid, signal.SIGSTOP)
        await asyncio.sleep(8)
        os.kill(grid.agents[frozen].pid, signal.SIGCONT)
        await asyncio.sleep(1)


@pytest.mark.parametrize("victim", [11, 1])
@pytest.mark.few(1)
async def test_a_killed_agent_comes_back_and_nothing_is_missing(grid, victim):
    streams = [grid.stream(*way) for way in ((11, 21), (21, 11), (12, 11))]

    async with flowing(streams):
        await asyncio.sleep(5)
        grid.agents[victim].kill9()
        await asyncio.sleep(1)
        await grid.agents[victim].start()
        await asyncio.sleep(1)


async def test_a_retained_value_is_there_for_who_comes_later(grid):
    async with client(grid.brokers[21], "setter") as setter:
        await setter.set("plan/today", b"swim")

    async with client(grid.brokers[11], "late", "plan/#") as late:
        await until(lambda: ("plan/today", b"swim") in late.came, "the value came")


async def test_what_leaves_want_is_summed_up_within_the_bound(plain):
    grid = await grid_of(plain, hub="[hub]\nfilters_max = 60\n")
    wishes = [f"site/{n % 10}/{n}" for n in range(200)]
    sender, taker = grid.stream(2, 11, topic="site/7/77")

    async with client(grid.brokers[11], "many", *wishes), running(sender, taker):
        await gets_through(sender, taker)
        told = await eventually(
            grid.agents[2],
            lambda told: all(leaf["filters_told"] >= 10 for leaf in told["leaves"]),
            "leaves of the other hub heard",
        )
        for leaf in told["leaves"]:
            assert leaf["filters_told"] <= 60
        assert len(told["meshes"]) <= 60


async def test_a_hub_whose_broker_died_serves_its_leaves_again(grid):
    streams = [grid.stream(*way) for way in ((11, 21), (21, 12), (11, 12))]
    # The hub's agent takes long to subscribe all of it again, its ports do not.
    wishes = [f"wish/{n % 30}/{n}" for n in range(900)]

    async with client(grid.brokers[2], "many", *wishes), running(*clients(streams)):
        await begin(streams)
        await asyncio.sleep(5)
        grid.brokers[1].kill9()
        await asyncio.sleep(1)
        kept = [sender.sent for sender, _ in streams]  # from here on leaves and hub 2 keep all
        await asyncio.sleep(2)
        await grid.brokers[1].start()
        await eventually(grid.agents[1], linked(2), "hub 1 is linked again")
        await eventually(grid.agents[1], all_leaves_up(11, 12), "and its leaves")
        await asyncio.sleep(1)

        for sender, _ in streams:
            sender.pause()
        for (sender, taker), first in zip(streams, kept, strict=True):
            owed = set(range(first, sender.sent))
            await until(lambda t=taker, o=owed: o <= set(t.came), f"{taker.link.client_id}: all")
