"""One demand under each manner of steering: what is measured, and how.

- **relief**: constant demand that overloads a link; how full the fullest is after a minute, and
  what all paths cost then, over what ``plan solve --method exact`` makes of the whole demand.
- **noise**: ten minutes of it with rates noisy by a fifth; the most moves that one flow makes
  within five minutes, after the first minute, and what steering costs beside the data.
- **shift**: one flow of a federation with room grows for good until it overloads a link.
- **burst**: the same flow carries eight times as much, for two seconds, five times.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final

from federator.planner.flow.watch import Watch
from federator.planner.steering.fitting import FILL_MAX
from lab.local_steering.board import length_of
from lab.local_steering.demand import (
    CAPACITY,
    Demand,
    Flow,
    draw,
    exact,
    greedy,
    loads_of,
    network_of,
    ordinary_ways,
)
from lab.local_steering.words import Ends
from lab.local_steering.world import LoadedWorld

SETTLED_S: Final = 60.0
NOISY_S: Final = 600.0
NOISE: Final = 0.2
FIVE_MINUTES_S: Final = 300.0
CALM_S: Final = 120.0
SHIFT_S_MAX: Final = 120.0
BURSTS: Final = 5
BURST_S: Final = 2.0
BURST_TIMES: Final = 8.0
EXACT_S: Final = 60.0
CLOSE: Final = 0.002
"""A second's bytes are whole ones."""


@dataclass(frozen=True)
class Outcome:
    """What one manner of steering made of one demand."""

    steerer: str
    fullest: float  # after a minute, true rates over capacity
    over_exact: float  # cost of all paths over the exact answer's, less one
    moves: int  # of relief
    most_moves: int  # of one flow within five minutes, under noise, after the first minute
    late_moves: int  # of all flows, then
    fullest_noisy: float  # in the end, by the rates that are meant
    control_share: float  # of data bytes, under noise
    shift_s: float  # until no link is over its capacity; infinite: not within two minutes
    shift_95_s: float  # until none is over 95 %, likewise
    burst_moves: int


def try_out(seed: int, brokers: int, steerer: str, exact_cost: float) -> Outcome:
    """Everything about one manner."""
    demand = draw(seed, brokers)
    relief = LoadedWorld(demand, steerer)
    relief.pass_time(SETTLED_S)
    ways = ways_of(relief)
    noisy = LoadedWorld(demand, steerer, noise=NOISE)
    noisy.pass_time(NOISY_S)
    over_s, over_95_s = shift(seed, brokers, steerer)
    late = [(at_s, flow) for at_s, flow in noisy.moves if at_s > SETTLED_S]
    return Outcome(
        steerer=steerer,
        fullest=fullest(demand, ways),
        over_exact=cost_of(demand, ways) / exact_cost - 1,
        moves=len(relief.moves),
        most_moves=most_within(late, FIVE_MINUTES_S),
        late_moves=len(late),
        fullest_noisy=fullest(demand, ways_of(noisy)),
        control_share=noisy.steering_bytes() / noisy.data_bytes(),
        shift_s=over_s,
        shift_95_s=over_95_s,
        burst_moves=burst(seed, brokers, steerer),
    )


def shift(seed: int, brokers: int, steerer: str) -> tuple[float, float]:
    """How long a lasting shift leaves a link over its capacity, and over 95 % of it, in seconds."""
    before, flow, times = growing(seed, brokers)
    world = LoadedWorld(before, steerer, noise=NOISE)
    world.pass_time(CALM_S)
    world.demand = before.scaled(flow, times)
    over_s = inf
    for second in range(int(SHIFT_S_MAX)):
        fill = fullest(world.demand, ways_of(world))
        over_s = min(over_s, second) if fill <= 1 else over_s
        if fill <= FILL_MAX + CLOSE:
            return over_s, float(second)
        world.pass_time(1.0)
    return over_s, inf


def burst(seed: int, brokers: int, steerer: str, *, times: int = BURSTS) -> int:
    """How many moves bursts of two seconds cause."""
    calm, flow, _ = growing(seed, brokers)
    world = LoadedWorld(calm, steerer, noise=NOISE)
    world.pass_time(CALM_S)
    before = len(world.moves)
    for _ in range(times):
        world.demand = calm.scaled(flow, BURST_TIMES)
        world.pass_time(BURST_S)
        world.demand = calm
        world.pass_time(30.0)
    return len(world.moves) - before


def growing(seed: int, brokers: int) -> tuple[Demand, Flow, float]:
    """A demand with room, and a flow of it that overloads a link by growing, but would fit."""
    for attempt in range(100):
        demand = draw(seed + 1_000 * attempt, brokers, fullest=(0.5, 0.6))
        ways = ordinary_ways(demand, network_of(demand))
        loads = loads_of(demand, ways)
        link = max(loads, key=lambda ends: loads[ends])
        flow = max(
            (flow for flow, way in ways.items() if link in way),
            key=lambda flow: demand.flows[flow][1],
        )
        times = (1.15 * CAPACITY - loads[link]) / demand.flows[flow][1] + 1
        grown = demand.scaled(flow, times)
        if grown.flows[flow][1] < FILL_MAX * CAPACITY and not greedy(grown).unmet:
            return demand, flow, times
    raise AssertionError(f"no demand like that near seed {seed}")


def exact_cost(seed: int, brokers: int, seconds: Callable[[], float]) -> float:
    """What the exact answer costs; its proven bound, where time ends before."""
    watch = Watch(seconds=seconds, time_limit_s=EXACT_S, started_s=seconds())
    return exact(draw(seed, brokers), watch).lower_bound


@dataclass(frozen=True)
class Large:
    """What became of many brokers in five minutes of noise."""

    brokers: int
    flows: int
    steerer: str
    fullest_settled: float  # after a minute, true rates over capacity
    fullest: float  # after five
    moves_settling: int  # in the first minute
    moves_late: int
    control_share: float  # of data bytes

    @property
    def text(self) -> str:
        """In a line."""
        return (
            f"{self.brokers} brokers, {self.flows} flows, {self.steerer}: fullest link "
            f"{self.fullest_settled:.0%} after a minute, {self.fullest:.0%} after five; "
            f"{self.moves_settling} moves, then {self.moves_late}; "
            f"bytes of steering {self.control_share:.2%} of those of data"
        )


def large(brokers: int, steerer: str, *, seed: int) -> Large:
    """Many brokers under one manner, in five minutes of noise."""
    demand = draw(seed, brokers)
    world = LoadedWorld(demand, steerer, noise=NOISE)
    world.pass_time(SETTLED_S)
    first, early = fullest(demand, ways_of(world)), len(world.moves)
    world.pass_time(FIVE_MINUTES_S - SETTLED_S)
    return Large(
        brokers=brokers,
        flows=len(demand.flows),
        steerer=steerer,
        fullest_settled=first,
        fullest=fullest(demand, ways_of(world)),
        moves_settling=early,
        moves_late=len(world.moves) - early,
        control_share=world.steering_bytes() / world.data_bytes(),
    )


def ways_of(world: LoadedWorld) -> dict[Flow, frozenset[Ends]]:
    """Where flows go now."""
    ways = ordinary_ways(world.demand, network_of(world.demand))
    trees = {flow: frozenset(tree.edges) for flow, tree in world.trees().items()}
    return ways | {flow: way for flow, way in trees.items() if flow in ways}


def fullest(demand: Demand, ways: Mapping[Flow, frozenset[Ends]]) -> float:
    """The share of its capacity that the fullest link is to carry."""
    return max(loads_of(demand, ways).values()) / CAPACITY


def cost_of(demand: Demand, ways: Mapping[Flow, frozenset[Ends]]) -> float:
    """The costs of all paths, one for each destination."""
    return sum(
        length_of(way, flow[0], demand.flows[flow][0], lambda ends: float(demand.costs[ends]))
        for flow, way in ways.items()
    )


def most_within(moves: list[tuple[float, Flow]], span_s: float) -> int:
    """The most moves of one flow within ``span_s``."""
    times: dict[Flow, list[float]] = defaultdict(list)
    for at_s, flow in moves:
        times[flow].append(at_s)
    return max(
        (
            sum(begin <= at_s < begin + span_s for at_s in each)
            for each in times.values()
            for begin in each
        ),
        default=0,
    )
