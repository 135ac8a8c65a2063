"""A leaf that names three hubs takes the two nearest, and another one when one is gone."""

import asyncio
import contextlib
import os
import signal
from urllib.parse import urlsplit

from lab.grid.processes.relay import Relay
from tests.real.agent_log import named
from tests.real.leaves.test_reserve import LOOKED_BACK_S, Grid, served_by
from tests.real.plain_agents import eventually, linked
from tests.real.polling import until
from tests.real.streams import flowing

FAR_S = 0.04
WAYS = [(11, 3), (3, 11), (11, 2), (1, 11)]
AUTO = '[topology]\nmode = "auto"\npatience_ms = 2000\nexchange_ms = 6000\n'


@contextlib.asynccontextmanager
async def far_from(broker):
    """A way to ``broker`` that takes long; its URL."""
    place = urlsplit(broker.url)
    way = Relay((place.hostname, place.port), delay_s=FAR_S)
    try:
        yield f"mqtt://127.0.0.1:{way.listen()}"
    finally:
        way.close()


async def finding(grid, *others):
    """Three hubs, of which hub 1 is far, and leaf 11, which names them all; ``others`` too."""
    await grid.start({}, takes={1: [11, *others], 2: [11, *others], 3: [11, *others]})


async def add_leaf(grid, leaf, *places):
    grid.brokers[leaf] = await grid.plain.broker()
    grid.agents[leaf] = await grid.plain.agent(
        leaf, grid.brokers[leaf], *places, role="leaf", more=AUTO
    )


def places(grid, **instead):
    """Where the hubs are, by URL and id."""
    return [(instead.get(f"hub{hub}", grid.brokers[hub].url), hub) for hub in (1, 2, 3)]


def taken(told):
    """The hubs that a leaf took."""
    return {each["id"] for each in told["hubs_known"] if each["taken"]}


def is_served(told):
    """Whether a leaf with two hubs is served by one."""
    return (told["hubs"] or {}).get("served_by") is not None


async def test_a_leaf_takes_near_hubs_and_another_one_when_one_is_gone(plain):
    grid = Grid(plain)
    await finding(grid)
    async with far_from(grid.brokers[1]) as far:
        await add_leaf(grid, 11, *places(grid, hub1=far))
        leaf = grid.agents[11]
        status = await eventually(leaf, linked(2, 3), "it is linked with those that are near")
        assert taken(status) == {2, 3}
        seen = {each["id"]: each for each in status["hubs_known"]}
        assert seen[1]["round_trip_ms"] > 1_000 * FAR_S > 2 * seen[2]["round_trip_ms"]
        serving = status["hubs"]["served_by"]
        streams = [grid.stream(*way) for way in WAYS if serving not in way]

        async with flowing(streams):
            await asyncio.sleep(LOOKED_BACK_S)
            dead = grid.parts(serving, agent=True, broker=True)
            for part in dead:
                part.kill9()
            left = ({2, 3} - {serving}).pop()
            await eventually(leaf, served_by(left), "the other one serves")
            await eventually(leaf, linked(1, left), "the far one is in reserve")
            await asyncio.sleep(3)
            for part in reversed(dead):
                await part.start()
            await eventually(leaf, linked(2, 3), "it left the far one again")
            await asyncio.sleep(3)

        status = await leaf.status()
        assert taken(status) == {2, 3}
        assert status["hubs"]["served_by"] == left, "nobody moved it"
        await leaf.stop()
        await leaf.start()
        await eventually(leaf, linked(2, 3), "it goes on with what it took")
        assert len(named(leaf, "leaf.hubs_taken")) == 3


async def test_a_hub_that_serves_many_is_left_to_them(plain):
    grid = Grid(plain)
    await finding(grid, 12)
    await add_leaf(grid, 12, *places(grid))
    status = await eventually(grid.agents[12], is_served, "leaf 12 is served")
    first = status["hubs"]["served_by"]

    await asyncio.sleep(12)  # hubs say every 10 s how many leaves they serve
    await add_leaf(grid, 11, *places(grid))

    status = await eventually(grid.agents[11], is_served, "leaf 11 is served")
    assert {each["id"]: each["leaves"] for each in status["hubs_known"]}[first] == 1
    assert status["hubs"]["served_by"] != first


async def test_another_list_is_followed_by_a_reload(plain):
    grid = Grid(plain)
    await finding(grid)
    await add_leaf(grid, 11, *places(grid)[:1])
    leaf = grid.agents[11]
    await eventually(leaf, linked(1), "it has one hub")

    leaf.config.neighbours = tuple(places(grid)[:2])
    leaf.config_path.write_text(leaf.config.toml(leaf.state_dir))
    os.kill(leaf.pid, signal.SIGHUP)

    status = await eventually(leaf, linked(1, 2), "it has two")
    assert taken(status) == {1, 2}
    await until(lambda: named(leaf, "config.reloaded"), "it is told")
