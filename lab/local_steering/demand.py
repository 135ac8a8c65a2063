"""Federations of narrow links, with demand that fits but overloads some by shortest paths."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from federator.planner.flow.watch import UNWATCHED, Watch
from federator.planner.methods import SOLVERS, Method
from federator.planner.steering.fitting import FILL_MAX, Problem, Wish
from federator.planner.steering.network import Link, Network
from federator.protocol.types import BrokerId
from lab.local_steering.words import Ends

CAPACITY: Final = 2e6
"""bit/s, of each direction of each link."""

Flow = tuple[BrokerId, str]
"""Where a flow begins, and its topic."""


@dataclass(frozen=True)
class Demand:
    """Links with their costs, in both directions; flows with destinations and bit/s."""

    seed: int
    costs: Mapping[Ends, int]
    flows: Mapping[Flow, tuple[tuple[BrokerId, ...], float]]

    @property
    def brokers(self) -> list[BrokerId]:
        """All of them."""
        return sorted({end for ends in self.costs for end in ends})

    def scaled(self, flow: Flow, factor: float) -> "Demand":
        """With one flow that carries so many times as much."""
        to, rate = self.flows[flow]
        return replace(self, flows={**self.flows, flow: (to, rate * factor)})


@dataclass(frozen=True)
class Answer:
    """What a centre that knows everything makes of a demand."""

    cost: float
    lower_bound: float
    unmet: int


def draw(seed: int, brokers: int, *, fullest: tuple[float, float] = (1.05, 1.4)) -> Demand:
    """A connected graph with flows, whose fullest link is that full by shortest paths."""
    rng = random.Random(f"local {seed} {brokers}")
    while True:
        demand = _draw(rng, seed, brokers)
        network = network_of(demand)
        loads = loads_of(demand, ordinary_ways(demand, network))
        aim = rng.uniform(*fullest)
        scale = aim * CAPACITY / max(loads.values())
        flows = {flow: (to, rate * scale) for flow, (to, rate) in demand.flows.items()}
        demand = replace(demand, flows=flows)
        if brokers > 20 or not greedy(demand).unmet:
            return demand


def network_of(demand: Demand) -> Network:
    """The network as the planner takes it."""
    return Network({ends: Link(float(cost), True) for ends, cost in demand.costs.items()})


def ordinary_ways(demand: Demand, network: Network) -> dict[Flow, frozenset[Ends]]:
    """Where flows go by themselves."""
    return {
        flow: frozenset(network.links[k] for k in network.way(flow[0], to))
        for flow, (to, _) in demand.flows.items()
    }


def loads_of(demand: Demand, ways: Mapping[Flow, frozenset[Ends]]) -> dict[Ends, float]:
    """bit/s of each link."""
    loads = dict.fromkeys(demand.costs, 0.0)
    for flow, way in ways.items():
        for ends in way:
            loads[ends] += demand.flows[flow][1]
    return loads


def exact(demand: Demand, watch: Watch = UNWATCHED) -> Answer:
    """``plan solve --method exact`` with all flows, and links ``FILL_MAX`` full at most."""
    return _solved(demand, Method.EXACT, watch)


def greedy(demand: Demand) -> Answer:
    """One after the other, each by the shortest way that has room."""
    return _solved(demand, Method.GREEDY, UNWATCHED)


def _solved(demand: Demand, method: Method, watch: Watch) -> Answer:
    network = network_of(demand)
    ways = ordinary_ways(demand, network)
    ranked = sorted(demand.flows.items(), key=lambda each: -each[1][1])
    wishes = tuple(
        Wish(flow[0], to, rate, tuple(sorted(network.at[ends] for ends in ways[flow])))
        for flow, (to, rate) in ranked
    )
    capacity = 0 * network.cost + CAPACITY
    problem = Problem(network, wishes, capacity, capacity)
    found = SOLVERS[method](problem.instance(FILL_MAX), seed=0, watch=watch)
    return Answer(found.cost, found.lower_bound, found.unmet)


def _draw(rng: random.Random, seed: int, brokers: int) -> Demand:
    ids = [BrokerId(each) for each in range(1, brokers + 1)]
    links = {(rng.choice(ids[:at]), ids[at]): rng.randint(1, 5) for at in range(1, brokers)}
    while len(links) < 2 * brokers:
        a, b = sorted(rng.sample(ids, 2))
        if (a, b) not in links:
            links[a, b] = rng.randint(1, 5)
    flows = {}
    for number in range(3 * brokers):
        origin = rng.choice(ids)
        others = [each for each in ids if each != origin]
        to = tuple(sorted(rng.sample(others, rng.randint(1, 2))))
        flows[origin, f"t/{number}"] = (to, rng.uniform(1, 4))
    both = links | {(b, a): cost for (a, b), cost in links.items()}
    return Demand(seed, both, flows)
