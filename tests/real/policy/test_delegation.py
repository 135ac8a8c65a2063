"""Delegation on real brokers: rules written by the planner, and the messages that then cross."""

import json
import tomllib
from dataclasses import replace
from functools import partial

import pytest

from federator.cli.planning.place_delegate import rules
from federator.planner.delegation.live import parse, plan
from federator.planner.delegation.policies import Policy
from lab.grid.processes.agent import AgentProcess
from lab.grid.running import RunningGrid
from lab.grid.topology import Grid
from tests.real.flow import running
from tests.real.plain_agents import QUICK
from tests.real.policy.delegated import HUB, ROUNDS, TOLERANCE, Counting, crossing, described
from tests.real.polling import until


async def with_rules(grid, rules_of):
    """Start agents again with the rules given by their ids."""
    for here, section in rules_of.items():
        agent = grid.agents[here]
        await agent.stop()
        config = agent.config
        again = replace(config, more={**config.more, "rules": section})
        grid.agents[here] = AgentProcess(agent.folder, again)
        await grid.agents[here].start()
    await grid.until(grid.links_up)
    await grid.until(grid.interest_known)


def learned(description):
    """What every agent must know before anything is published."""
    wanted = {f for b in description["brokers"] for f in b["subscribes"]}

    def fault(statuses):
        for here, status in statuses.items():
            known = {mesh["filter"]: mesh for mesh in status["meshes"]}
            for filter_ in sorted(wanted):
                holders = [b["id"] for b in description["brokers"] if filter_ in b["subscribes"]]
                if filter_ not in known:
                    return f"broker {here} has not heard of {filter_}"
                if here in holders and not known[filter_]["local"]:
                    return f"broker {here} has not learned {filter_}"
                if holders != [here] and not known[filter_]["next_hops"]:
                    return f"broker {here} has no way for {filter_}"
                if known[filter_]["handing_over_from"] is not None:
                    return f"broker {here} hands {filter_} over"
        return None

    return fault


def imports_only(beginning, *, broker, held):
    """The agent of ``broker`` wants nothing else of the federation, and says how much it held."""

    def fault(statuses):
        status = statuses[broker]
        local = [mesh["filter"] for mesh in status["meshes"] if mesh["local"]]
        if len(local) != 4 or not all(filter_.startswith(beginning) for filter_ in local):
            return f"broker {broker} wants {local}"
        told = status["rules"]["not_imported"]
        return None if told == held else f"{told} filters are not imported"

    return fault


async def counters(grid):
    """Of every agent's data path, as they are now."""
    statuses = await grid.statuses()
    return {here: status["counters"]["data"] for here, status in statuses.items()}


@pytest.mark.full
async def test_rules_cut_inter_broker_messages_as_predicted_and_lose_nothing(tmp_path):
    description = described()
    crossings = {}
    async with RunningGrid(
        Grid(1, 3, 1), tmp_path, link_delay_ms=0, redundancy=1, broker_options=QUICK
    ) as grid:
        clients = {
            b["id"]: Counting(grid.brokers[b["id"]].port, f"client-{b['id']}", b["subscribes"])
            for b in description["brokers"]
        }
        collector = Counting(grid.brokers[HUB].port, "collector", description["collects"])
        async with running(collector, *clients.values()):
            await until(lambda: all(c.link.subscribed for c in clients.values()), "subscribed")
            for policy in (Policy.CENTRALISED, Policy.LP, Policy.NS):
                edges = plan(parse(json.dumps(description), name="test"), policy)
                await with_rules(grid, {e.id: tomllib.loads(rules(e))["rules"] for e in edges})
                await grid.until(learned(description))
                crossings[policy] = await crossing(partial(counters, grid), description, clients)

                for edge in edges:
                    up, down = crossings[policy][edge.id]
                    assert up == pytest.approx(ROUNDS * edge.up, rel=TOLERANCE)
                    assert down == pytest.approx(ROUNDS * edge.down, rel=TOLERANCE)

            await with_rules(grid, {1: {"import": ["city/1/#"]}})
            await grid.until(imports_only("city/1/", broker=1, held=3))

    total = {policy: sum(map(sum, each.values())) for policy, each in crossings.items()}
    assert total[Policy.NS] < total[Policy.LP] < total[Policy.CENTRALISED]
    kept = {topic for edge in edges for topic in edge.keep}
    assert len(kept) == 17  # of 24, under NS
    assert all(collector.came.get(t, 0) <= 2 * ROUNDS for t in kept)  # not under NS
