"""All methods by name."""

from collections.abc import Callable
from enum import StrEnum

from federator.planner import annealing, exact, greedy, lagrangian, local_split
from federator.planner.distributed import world
from federator.planner.instance import Instance
from federator.planner.outcome import Outcome
from federator.planner.watch import Watch


class Method(StrEnum):
    """How to solve."""

    EXACT = "exact"
    F2 = "f2"
    LAGRANGIAN = "lagrangian"
    DISTRIBUTED = "distributed"
    SPLIT = "split"
    ANNEALING = "annealing"
    GREEDY = "greedy"


def solve(method: Method, instance: Instance, *, seed: int, watch: Watch) -> Outcome:
    """Solve ``instance`` with ``method`` and its usual settings."""
    ways: dict[Method, Callable[[], Outcome]] = {
        Method.EXACT: lambda: exact.solve_f1(instance, seed=seed, watch=watch),
        Method.F2: lambda: exact.solve_f2(instance, seed=seed, watch=watch),
        Method.LAGRANGIAN: lambda: lagrangian.solve(instance, seed=seed, watch=watch),
        Method.DISTRIBUTED: lambda: world.solve(instance, seed=seed, watch=watch),
        Method.SPLIT: lambda: local_split.solve(instance, seed=seed, watch=watch),
        Method.ANNEALING: lambda: annealing.solve(instance, seed=seed, watch=watch),
        Method.GREEDY: lambda: greedy.solve(instance, watch=watch),
    }
    return ways[method]()
