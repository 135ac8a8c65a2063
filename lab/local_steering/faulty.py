"""Federations under faults whose agents steer by loads drawn by chance, and some of them not.

What a tree is good for does not matter here: loads change every few seconds, prices and turns
follow, and words are lost, late and doubled like all else. Every mixture that comes of it must
carry each publication once to everybody, which the simulator's invariants watch.
"""

import random
from collections.abc import Sequence
from typing import Any, Final

from federator.protocol.messages.steering import FlowLoad, LinkLoad, Plan, Tree
from federator.protocol.types import BrokerId
from lab.local_steering.steered_world import SteeredWorld
from lab.sim import scenario
from lab.sim.campaign import SeedResult, run_scenario
from lab.sim.network import Agent
from lab.sim.plan import WorldPlan
from lab.sim.scenario import TOPICS
from lab.sim.steering import flows_of

NODES: Final = 8
TICK_MS: Final = 250
LOADS_MS: Final = 4_000
"""How often the load of a link changes, on average."""

LINK_RATE: Final = 1_000.0
DEAF: Final = 0.15
"""Share of agents that pass words on and tell their own, but follow no tree."""


class FaultyWorld(SteeredWorld):
    """A world of a story in which loads are drawn."""

    def __init__(self, plan: WorldPlan, *, seed: int, **options: Any) -> None:  # noqa: ANN401
        self._dice = random.Random(f"loads {seed}")
        self._deaf = {id for id in plan.ids if self._dice.random() < DEAF}
        self._flows: dict[BrokerId, list[FlowLoad]] = {}
        self._loads: dict[tuple[BrokerId, BrokerId], float] = {}
        for origin, filters in sorted(flows_of(plan, TOPICS)):
            to = {id for id, wanted in plan.filters.items() if wanted.intersection(filters)}
            rate = self._dice.uniform(0.05, 0.5) * LINK_RATE
            flow = FlowLoad(filters, tuple(sorted(to - {origin})), rate, 0.0, 1.0)
            self._flows.setdefault(origin, []).append(flow)
        super().__init__(plan, seed=seed, **options)
        for id in plan.ids:
            self.agenda.at(self._dice.randrange(TICK_MS), self._tick, id)

    def follow(self, agent: Agent, trees: Sequence[Tree]) -> Plan | None:
        """The deaf follow none, also where others send flows through them."""
        return None if agent.id in self._deaf else super().follow(agent, trees)

    def _tick(self, id: BrokerId) -> None:
        self.agenda.at(self.now_ms + TICK_MS, self._tick, id)
        if (agent := self.agents.get(id)) is not None and agent.subscribed and not agent.pauses:
            self.sample(agent, self._links_of(agent), self._flows.get(id, []))
            self.fired["local move"] += len(self.turn(agent))

    def _links_of(self, agent: Agent) -> list[LinkLoad]:
        up = agent.node.links.up
        links = []
        for to in sorted(up.keys() & agent.reach.keys()):
            ends = agent.id, to
            if ends not in self._loads or self._dice.random() < TICK_MS / LOADS_MS:
                self._loads[ends] = self._dice.choice((0.2, 0.9, 1.3)) * LINK_RATE
            links.append(LinkLoad(to, up[to].cost, self._loads[ends], capacity=LINK_RATE))
        return links


def run_mixture(seed: int) -> SeedResult:
    """The story of one seed."""
    story = scenario.draw(seed, nodes=NODES, strategy="shortest-path")
    return run_scenario(story, FaultyWorld)
