"""A leaf becomes a member, and a member a leaf, while publications flow: none is lost."""

import asyncio

import pytest

from federator.errors import LinkError
from federator.runtime.storage import damage
from tests.real.flow import running
from tests.real.leaves.test_reserve import Grid
from tests.real.plain_agents import eventually, linked
from tests.real.streams import begin, clients, flowing, none_lost

# Whoever changes its role is broker 11.
WAYS = [(11, 3), (3, 11), (11, 1), (1, 11), (11, 12), (12, 11)]
LEAVES = {12: (2, 1)}
MOVED_S = 120.0


def moves_on(phase):
    return lambda told: told["move"]["phase"] in (phase, "ended")


async def become(grid, role, *hubs):
    """Have the agent of broker 11 be followed by one with this role, linked with ``hubs``."""
    former = grid.agents[11]
    await former.stop()
    near = [(grid.brokers[hub].url, hub) for hub in hubs]
    grid.agents[11] = await grid.plain.agent(
        11,
        grid.brokers[11],
        *near,
        role=role,
        top=f'former = "{former.config_path}"',
    )
    return grid.agents[11]


async def start(plain, role):
    """A grid in which broker 11 is about to have this ``role``, and by which hub it will."""
    grid = Grid(plain)
    if role == "member":
        await grid.start(LEAVES | {11: (1,)})
        return grid, 2
    await grid.start(LEAVES, takes={1: [11]})
    grid.brokers[11] = await plain.broker()
    grid.agents[11] = await plain.agent(11, grid.brokers[11], (grid.brokers[2].url, 2))
    await eventually(grid.agents[11], linked(2), "the member is linked")
    return grid, 1


@pytest.mark.parametrize("role", ["member", "leaf"])
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.few(1)
async def test_the_role_of_a_broker_changes(plain, role, qos):
    grid, hub = await start(plain, role)
    streams = [grid.stream(*way, qos=qos) for way in WAYS]

    async with flowing(streams):
        await asyncio.sleep(3)
        agent = await become(grid, role, hub)
        await eventually(agent, linked(hub), "it is linked as what it is now")
        await eventually(agent, moves_on("handed over"), "it takes over", deadline_s=MOVED_S)
        await asyncio.sleep(5)
        if role == "member":
            await eventually(agent, moves_on("ended"), "the former ends", deadline_s=MOVED_S)
        await asyncio.sleep(3)


@pytest.mark.parametrize("role", ["member", "leaf"])
@pytest.mark.few(1)
async def test_a_move_survives_the_death_of_its_agents(plain, role):
    grid, hub = await start(plain, role)
    streams = [grid.stream(*way) for way in WAYS]

    async with flowing(streams, ends=none_lost):
        await asyncio.sleep(3)
        agent = await become(grid, role, hub)
        for phase in ("begun", "handed over"):
            await eventually(agent, moves_on(phase), phase, deadline_s=MOVED_S)
            await asyncio.sleep(3)
            agent.kill9()
            await asyncio.sleep(1)
            await agent.start()
        await eventually(agent, linked(hub), "it is linked again")
        await asyncio.sleep(15)


async def test_at_qos_0_nothing_comes_twice(plain):
    grid, hub = await start(plain, "member")
    streams = [grid.stream(*way, qos=0) for way in WAYS]

    async with running(*clients(streams)):
        await begin(streams)
        agent = await become(grid, "member", hub)
        await eventually(agent, moves_on("handed over"), "it takes over", deadline_s=MOVED_S)
        await asyncio.sleep(3)

        await begin(streams)
        for _, taker in streams:
            assert not taker.duplicates, taker.link.client_id


async def test_a_broker_whose_hub_is_gone_becomes_a_member(plain):
    grid, hub = await start(plain, "member")
    streams = [grid.stream(*way) for way in [(11, 3), (3, 11)]]

    async with running(*clients(streams)):
        await begin(streams)
        await grid.agents[1].stop()
        agent = await become(grid, "member", hub)
        await eventually(agent, moves_on("handed over"), "it takes over", deadline_s=MOVED_S)

        await begin(streams)


async def test_a_folder_in_which_an_agent_was_is_refused_and_a_move_is_not_taken_for_the_next(
    plain,
):
    grid, hub = await start(plain, "member")
    member = await become(grid, "member", hub)
    await member.stop()
    assert damage.unsealed((member.state_dir / "move").read_bytes()) == b"begun"
    top, member.config.top = member.config.top, ""
    await member.start()
    await member.stop()
    assert not (member.state_dir / "move").exists()

    member.config.top = top
    with pytest.raises(LinkError, match="an agent was here before, and this one begins anew"):
        await member.start()
