"""Two questions that single runs do not answer: how near do brokers come, and how does time grow?

``settle`` lets brokers agree on one instance and compares with the centralised answer to the same.
``exponent`` fits measured times to a power of ``n log n * topics``: 1 is growth in step with it.

Source: docs/planner.md 6.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from federator.planner.flow.watch import UNWATCHED, Watch
from federator.planner.lagrangian import heuristic as lagrangian
from lab.papers.flow import generators
from lab.papers.pricing.world import Conditions, World

NODES, TOPICS, FAN_OUT = 50, 40, 4
ROUNDING = 1e-6
CENTRAL = lagrangian.Effort(40, 10, 20, combinations=1, pricings=2, shuffles=10)
"""Of the centralised answer; within some percent of its own bound."""
LATE_ROUNDS = 40
"""Watched after the rounds that brokers are given: each topic has its turn six times."""


@dataclass(frozen=True, slots=True)
class Settled:
    """How one world ended."""

    seed: int  # of instance and world
    central: float  # cost of the centralised answer
    cost: float  # of the brokers' own after the rounds that they were given
    unmet: int  # requests not served then, or at worst in the ``LATE_ROUNDS`` that follow
    overload: float  # largest share by which a link's true load exceeded its capacity then
    late_moves: int  # parents changed in the ``LATE_ROUNDS`` that follow
    late_swing: float  # largest by smallest cost in these, less 1
    late_overload: float  # largest share by which a link's true load exceeded its capacity in these

    @property
    def excess(self) -> float:
        """Above the centralised answer, as a share of it."""
        return self.cost / self.central - 1

    @property
    def oscillates(self) -> bool:
        """Whether anybody changed its parent, or any link was too full, afterwards."""
        return self.late_moves > 0 or self.late_overload > ROUNDING


def settle(seed: int, conditions: Conditions, *, watch: Watch = UNWATCHED) -> Settled | None:
    """Brokers on a geometric graph, compared after these rounds; None when time was over."""
    instance = generators.geometric(NODES, topics=TOPICS, fan_out=FAN_OUT, seed=seed)
    central = lagrangian.solve(instance, effort=CENTRAL, watch=watch)
    rounds = conditions.rounds
    world = World(instance, replace(conditions, rounds=rounds + LATE_ROUNDS), seed)
    if world.run(watch) == "stopped":
        return None
    then, late = world.records[rounds - 1], world.records[rounds:]
    costs = [record.cost for record in late]
    return Settled(
        seed=seed,
        central=central.cost,
        cost=then.cost,
        unmet=max(record.unmet for record in [then, *late]),
        overload=then.overload,
        late_moves=sum(record.moves for record in late),
        late_swing=max(costs) / min(costs) - 1,
        late_overload=max(record.overload for record in late),
    )


def work(nodes: int, topics: int) -> float:
    """The work of one instance: ``n log n * topics``."""
    return nodes * math.log(nodes) * topics


def exponent(amounts: Sequence[float], seconds: Sequence[float]) -> float:
    slope, _ = np.polyfit(np.log(amounts), np.log(seconds), 1)
    return float(slope)
