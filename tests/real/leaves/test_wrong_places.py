"""Leaves that hang where nobody has them, and members that name a leaf: told in one clear line."""

import asyncio

import pytest

from tests.real.agent_log import named
from tests.real.observability.test_cli_agent import ran
from tests.real.plain_agents import eventually, linked
from tests.real.polling import until


async def told_at_start(agent, text):
    """The one warning that says how ``agent`` stands."""
    await eventually(agent, lambda status: text in status["ready_reason"], "status tells")

    def lines():
        return [line for line in named(agent, "agent.standing") if text in str(line["reasons"])]

    await until(lines, "it is logged")
    assert [line["level"] for line in lines()] == ["warning"], named(agent, "agent.standing")


@pytest.mark.parametrize("dial", ["out", "both"])
async def test_a_leaf_whose_hub_is_a_leaf_is_told_so(plain, dial):
    hub_broker, home, lost = await asyncio.gather(plain.broker(), plain.broker(), plain.broker())
    await plain.agent(1, hub_broker, more="[[leaves]]\nid = 11\n[[leaves]]\nid = 12\n")
    leaf = await plain.agent(11, home, hub_broker.url, role="leaf")
    below = await plain.agent(12, lost, home.url, role="leaf", links={"dial": dial})

    await told_at_start(below, "has it [[leaves]] with id = 12 (a leaf has none: name a hub)")
    _, examined, _ = await ran("doctor", "-c", str(below.config_path))

    assert await eventually(leaf, linked(1), "the other leaf is as it was")
    if dial == "out":
        assert "if it has [[leaves]] with id = 12; a leaf has none: name a hub" in examined


async def test_a_leaf_that_its_hub_has_no_entry_for_is_told_so(plain):
    hub_broker, home = await asyncio.gather(plain.broker(), plain.broker())
    await plain.agent(1, hub_broker, more="[[leaves]]\nid = 11\n")
    stray = await plain.agent(12, home, hub_broker.url, role="leaf")

    await told_at_start(stray, "has it [[leaves]] with id = 12 (a leaf has none: name a hub)")


async def test_a_hub_below_a_leaf_is_told_that_a_leaf_is_heard_by_its_hub_alone(plain):
    hub_broker, home, below = await asyncio.gather(plain.broker(), plain.broker(), plain.broker())
    await plain.agent(1, hub_broker, more="[[leaves]]\nid = 11\n")
    leaf = await plain.agent(11, home, hub_broker.url, role="leaf")
    hub = await plain.agent(2, below, home.url, more="[[leaves]]\nid = 21\n")

    await told_at_start(hub, "A leaf is heard by its hub alone")

    assert await eventually(leaf, linked(1), "the leaf is as it was")
