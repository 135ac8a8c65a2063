"""Signed: the key of a leaf is good at its hub, for its own id, and for nothing in the mesh."""

import asyncio

import pytest

from tests.real.agent_log import named
from tests.real.flow import running
from tests.real.plain_agents import eventually, gets_through, linked
from tests.real.polling import until
from tests.real.streams import stream
from tests.real.trust.test_signed import Office, keys


class LeafOffice(Office):
    """A folder with the key of the leaves' federation."""

    def __init__(self, folder):
        self.folder = folder
        keys("init", "--federation", "fed.leaves", folder)


@pytest.fixture
def offices(tmp_path):
    return Office(tmp_path / "mesh"), LeafOffice(tmp_path / "leaves")


async def signed_hub(plain, offices, *ids):
    """Broker 1, and its agent that has leaves with these ids."""
    mesh, below = offices
    broker = await plain.broker()
    below_hub = below.section(1).replace("[keys]", "[hub]")
    more = "\n".join([mesh.section(1), below_hub, *(f"[[leaves]]\nid = {id}" for id in ids)])
    return broker, await plain.agent(1, broker, security="signed", more=more)


async def test_a_signed_leaf_becomes_a_member(plain, offices):
    mesh, below = offices
    hub_broker, hub = await signed_hub(plain, offices, 11)
    home = await plain.broker()
    there = hub_broker.url, 1
    leaf = await plain.agent(
        11, home, there, security="signed", role="leaf", more=below.section(11)
    )
    await eventually(leaf, linked(1), "the leaf is linked")
    await leaf.stop()
    member = await plain.agent(
        11,
        home,
        there,
        security="signed",
        more=mesh.section(11),
        top=f'former = "{leaf.config_path}"',
    )
    sender, taker = stream(home, hub_broker, "a/b", "a/#", qos=1)

    async with running(sender, taker):
        await gets_through(sender, taker)
        wanted = lambda told: told["move"]["phase"] == "handed over"  # noqa: E731
        await eventually(member, wanted, "it is a member")
        await gets_through(sender, taker)

    assert not named(hub, "trust.refused")
    assert not named(member, "trust.refused")


@pytest.mark.parametrize("dial", ["out", "both"])
async def test_the_key_of_a_leaf_does_not_open_the_place_of_another_one(plain, offices, dial):
    _, below = offices
    hub_broker, hub = await signed_hub(plain, offices, 11, 12)
    captured, innocent = await plain.broker(), await plain.broker()
    key = below.section(11)
    honest = await plain.agent(
        12, innocent, (hub_broker.url, 1), security="signed", role="leaf", more=below.section(12)
    )
    await eventually(honest, linked(1), "the other leaf is linked")
    as_other = 'federation = "fed.leaves.12"\n'
    there = hub_broker.url, 1
    thief = await plain.agent(
        11, captured, there, security="signed", top=as_other, more=key, links={"dial": dial}
    )

    await until(lambda: named(thief, "agent.started"), "the thief runs")
    await asyncio.sleep(3)
    told = await hub.status()

    assert [leaf["id"] for leaf in told["leaves"] if leaf["up"]] == [12]
    assert not told["links"]
    told = await thief.status()
    assert [link["state"] for link in told["links"]] != ["up"]
    told = await honest.status()
    assert [link["state"] for link in told["links"]] == ["up"]


async def test_an_agent_with_the_key_of_a_leaf_does_not_start_in_the_mesh(plain, offices):
    _, below = offices
    broker = await plain.broker()

    with pytest.raises(Exception, match="this is broker 11 in 'fed'"):
        await plain.agent(11, broker, security="signed", more=below.section(11))
