"""A world whose brokers join by one of them, and arrange their links among themselves.

Brokers live in a plane, and what they say takes as long as the way is.
"""

import math
import random
from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import combinations

from federator.protocol import effects as e
from federator.protocol import events
from federator.protocol.parameters import Parameters
from federator.protocol.topology.graph import near_of
from federator.protocol.topology.parameters import TopologyParameters
from federator.protocol.types import BrokerId, Cost, Millis
from lab.sim.network import Agent, Dialler, Path
from lab.sim.plan import LinkPlan, WorldPlan, address_of
from lab.sim.watcher import Watcher
from lab.sim.world import World

CALLS_MAX = 20_000_000
NEAREST_MS, FARTHEST_MS = 1, 60  # one way, of brokers beside each other and in opposite corners

NOBODY = (BrokerId(-1),)
"""No operator names a neighbour: agents find them."""

PARAMETERS = Parameters(
    dial_back=False,
    core_ann_interval_ms=Millis(600_000),
    hello_interval_ms=Millis(2_000),
    hello_timeout_ms=Millis(6_000),
)
"""Rarer than a daemon's, for there are many of them."""


def plan_of(ids: Iterable[BrokerId], rng: random.Random) -> WorldPlan:
    """Brokers at random places, each of which can reach each other one."""
    where = {id: (rng.random(), rng.random()) for id in ids}
    links = []
    for a, b in combinations(sorted(where), 2):
        share = math.dist(where[a], where[b]) / math.sqrt(2)
        delay_ms = round(NEAREST_MS + share * (FARTHEST_MS - NEAREST_MS))
        link = LinkPlan(a, b, configured=NOBODY, delay_ms_min=delay_ms, delay_ms_max=delay_ms)
        links.append(link)
    return WorldPlan(tuple(sorted(where)), tuple(links), parameters=PARAMETERS)


class JoiningWorld(World):
    """Brokers that come, go and are split apart; ``seed`` is the only source of chance."""

    def __init__(
        self,
        seed: int,
        parameters: TopologyParameters,
        ids: Iterable[BrokerId],
        watcher: Watcher | None = None,
    ) -> None:
        super().__init__(plan_of(ids, random.Random(f"joining {seed}")), seed=seed, watcher=watcher)
        self.agenda.calls_max = CALLS_MAX
        self.changes: list[Millis] = []  # when ends of links came up or went down
        self._parameters = parameters
        self._seeds: dict[BrokerId, tuple[str, ...]] = {}
        self._known: dict[BrokerId, tuple[tuple[BrokerId, str], ...]] = {}
        self._cut: list[Path] = []
        for id in self.plan.ids:
            self.agent_stops[id] = self.brokers[id].stops = 1

    # --- what befalls brokers ---

    def start(self, id: BrokerId, seeds: Collection[BrokerId]) -> None:
        """A broker and its agent start; they know ``seeds``, and what they knew before."""
        if id not in self.agents:
            self._seeds[id] = tuple(map(address_of, seeds))
            self.start_broker(id)
            self.start_agent(id)

    def kill(self, id: BrokerId) -> None:
        """A broker and its agent die at once."""
        self.fired["death"] += 1
        self.stop_agent(id)
        self.stop_broker(id)

    def split(self, apart: Collection[BrokerId]) -> None:
        """``apart`` and the others reach each other no more; nobody apart heals it."""
        self.fired["split" if apart else "heal"] += 1
        for path in self._cut:
            self.wires.mend(path)
        self._cut = [p for (a, b), p in self.paths.items() if (a in apart) != (b in apart)]
        for path in self._cut:
            self.wires.cut(path)

    def graph(self) -> dict[BrokerId, set[BrokerId]]:
        """The links that are up at both ends."""
        up = {id: set(agent.node.links.up) for id, agent in self.agents.items()}
        pairs = [(a, b) for a, others in up.items() for b in others if a < b and a in up.get(b, ())]
        return near_of(self.agents, pairs)

    # --- inside ---

    def _topology_of(self, id: BrokerId) -> TopologyParameters:
        return replace(self._parameters, seeds=self._seeds[id], known=self._known.get(id, ()))

    def _reach_changed(self, agent: Agent, neighbour: BrokerId) -> None:
        super()._reach_changed(agent, neighbour)
        self.changes.append(self.now_ms)

    def _dial_back(self, agent: Agent, address: str) -> None:
        self._call_off(agent, self._address_book[address])
        super()._dial_back(agent, address)

    def _on_topology(
        self, agent: Agent, effect: e.DialSeed | e.CallOffSeed | e.Measure | e.RememberBrokers
    ) -> None:
        match effect:
            case e.DialSeed(address):
                dialler = Dialler(address, self._address_book[address], None, Cost(1))
                agent.diallers[f"seed {address}"] = dialler
                self.wires.dial(agent, dialler)
            case e.CallOffSeed(address):
                if f"seed {address}" in agent.diallers:
                    self._end(agent, agent.diallers.pop(f"seed {address}"))
            case e.Measure(id, _):
                path = self.paths[agent.id, id]
                far_ms = 2 * path.delay_ms_max
                there = path.usable and self.brokers[id].running
                measured = events.Measured(id, Millis(far_ms) if there else None)
                self.agenda.at(self.now_ms + far_ms, self._tell, agent, measured)
            case e.RememberBrokers(brokers):
                self._known[agent.id] = brokers
