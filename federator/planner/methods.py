"""The methods by name. The papers' other methods are compared in the laboratory."""

from collections.abc import Callable, Mapping
from enum import StrEnum

from federator.planner.flow import exact
from federator.planner.flow.instance import Instance
from federator.planner.flow.outcome import Outcome, outcome
from federator.planner.flow.watch import UNWATCHED, Progress, Watch
from federator.planner.flow.workbench import Workbench
from federator.planner.lagrangian import heuristic

Solver = Callable[[Instance, int, Watch], Outcome]
"""An instance, a seed, and who is told how far it is and says when to stop."""


class Method(StrEnum):
    """The name of a method."""

    EXACT = "exact"
    F2 = "f2"
    LAGRANGIAN = "lagrangian"
    GREEDY = "greedy"


def solve_greedily(instance: Instance, *, watch: Watch = UNWATCHED) -> Outcome:
    """Let each topic, in the order of the file, take the shortest paths that have room.

    What a user would write first: it proves nothing, and is what better methods are measured by.
    """
    bench = Workbench(instance)
    stopped = "done"
    for topic in range(instance.topics):
        if watch.over():
            stopped = "stopped"
            break
        bench.insert(topic)
        watch.report(Progress(topic / instance.topics, bench.total()))
    return outcome(instance, bench.routing(), method="greedy", stopped=stopped)


SOLVERS: Mapping[str, Solver] = {
    Method.EXACT: lambda instance, seed, watch: exact.solve_f1(instance, seed=seed, watch=watch),
    Method.F2: lambda instance, seed, watch: exact.solve_f2(instance, seed=seed, watch=watch),
    Method.LAGRANGIAN: lambda instance, seed, watch: heuristic.solve(
        instance, seed=seed, watch=watch
    ),
    Method.GREEDY: lambda instance, seed, watch: solve_greedily(instance, watch=watch),
}


def solve(method: Method, instance: Instance, *, seed: int, watch: Watch) -> Outcome:
    """Solve ``instance`` with ``method`` and its usual settings."""
    return SOLVERS[method](instance, seed, watch)
