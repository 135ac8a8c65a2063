"""Brokers that join by one of them, and arrange their links among themselves.

They live in a plane, and what they say takes as long as the way is.
"""

import math
import random
from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import combinations

from federator.protocol import effects as e
from federator.protocol.events import Measured
from federator.protocol.parameters import Parameters
from federator.protocol.topology.graph import near_of
from federator.protocol.topology.parameters import TopologyParameters
from federator.protocol.types import BrokerId, Cost, Millis
from lab.sim.network import Agent, Dialler, Path
from lab.sim.parts import Part
from lab.sim.plan import LinkPlan, WorldPlan, address_of
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


def plan_of(ids: Iterable[BrokerId], seed: int) -> WorldPlan:
    """Brokers at random places, each of which can reach each other one."""
    rng = random.Random(f"joining {seed}")
    where = {id: (rng.random(), rng.random()) for id in ids}
    links = []
    for a, b in combinations(sorted(where), 2):
        share = math.dist(where[a], where[b]) / math.sqrt(2)
        delay_ms = round(NEAREST_MS + share * (FARTHEST_MS - NEAREST_MS))
        links.append(LinkPlan(a, b, Cost(1), NOBODY, delay_ms_min=delay_ms, delay_ms_max=delay_ms))
    return WorldPlan(tuple(sorted(where)), tuple(links), parameters=PARAMETERS)


class Joining(Part):
    """Brokers that come, go and are split apart. All are away at first."""

    def __init__(self, world: World) -> None:
        assert world.plan.arranging is not None, "agents arrange their links"
        self.world = world
        self.changes: list[Millis] = []  # when ends of links came up or went down
        self._parameters = world.plan.arranging
        self.neighbours = world.plan.arranging.neighbours  # links that each wants
        self._seeds: dict[BrokerId, tuple[str, ...]] = {}
        self._known: dict[BrokerId, tuple[tuple[BrokerId, str], ...]] = {}
        self._cut: list[Path] = []
        world.agenda.calls_max = CALLS_MAX
        for id in world.plan.ids:
            world.agent_stops[id] = world.brokers[id].stops = 1

    # --- what befalls brokers ---

    def start(self, id: BrokerId, seeds: Collection[BrokerId]) -> None:
        """A broker and its agent start; they know ``seeds``, and what they knew before."""
        if id not in self.world.agents:
            self._seeds[id] = tuple(map(address_of, seeds))
            self.world.start_broker(id)
            self.world.start_agent(id)

    def kill(self, id: BrokerId) -> None:
        self.world.fired["death"] += 1
        self.world.stop_agent(id)
        self.world.stop_broker(id)

    def split(self, apart: Collection[BrokerId]) -> None:
        """``apart`` and the others reach each other no longer; an empty ``apart`` heals that."""
        world = self.world
        world.fired["split" if apart else "heal"] += 1
        for path in self._cut:
            world.wires.mend(path)
        self._cut = [p for (a, b), p in world.paths.items() if (a in apart) != (b in apart)]
        for path in self._cut:
            world.wires.cut(path)

    def graph(self) -> dict[BrokerId, set[BrokerId]]:
        """The links that are up at both ends."""
        up = {id: set(agent.node.links.up) for id, agent in self.world.agents.items()}
        pairs = [(a, b) for a, others in up.items() for b in others if a < b and a in up.get(b, ())]
        return near_of(up, pairs)

    # --- as a part ---

    def topology_of(self, id: BrokerId) -> TopologyParameters:
        return replace(
            self._parameters, seeds=self._seeds[id], addresses_before=self._known.get(id, ())
        )

    def reach_changed(self, agent: Agent, neighbour: BrokerId) -> None:
        self.changes.append(self.world.now_ms)

    def perform(self, agent: Agent, effect: e.Effect) -> bool:
        """As the runtime's ``NeighbourLinks`` and ``Arranger``."""
        world = self.world
        match effect:
            case e.DialSeed(address):
                dialler = Dialler(address, world.address_book[address], None, Cost(1))
                world.dial(agent, dialler, key=f"seed {address}")
            case e.CallOffSeed(address):
                if (seed := agent.diallers.pop(f"seed {address}", None)) is not None:
                    world.end(agent, seed)
            case e.Measure(id, _):
                path = world.paths[agent.id, id]
                far_ms = Millis(2 * path.delay_ms_max)
                there = path.usable and world.brokers[id].running
                measured = Measured(id, far_ms if there else None)
                world.agenda.at(world.now_ms + far_ms, world.tell, agent, measured)
            case e.RememberBrokers(brokers):
                self._known[agent.id] = brokers
            case _:
                return False
        return True
