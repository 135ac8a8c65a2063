"""The methods by name. The papers' other methods are compared in the laboratory."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

from federator.planner.flow import exact
from federator.planner.flow.instance import Instance
from federator.planner.flow.outcome import Outcome, outcome
from federator.planner.flow.watch import UNWATCHED, Progress, Watch
from federator.planner.flow.workbench import Workbench
from federator.planner.lagrangian import heuristic


class Solver(Protocol):
    """A method with its usual settings."""

    def __call__(self, instance: Instance, *, seed: int, watch: Watch) -> Outcome:
        """Solve ``instance``; tell ``watch`` how far it is, and stop when that says so."""


class Method(StrEnum):
    """The name of a method."""

    EXACT = "exact"
    F2 = "f2"
    LAGRANGIAN = "lagrangian"
    GREEDY = "greedy"


def solve_greedily(instance: Instance, *, seed: int = 0, watch: Watch = UNWATCHED) -> Outcome:
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
    Method.EXACT: exact.solve_f1,
    Method.F2: exact.solve_f2,
    Method.LAGRANGIAN: heuristic.solve,
    Method.GREEDY: solve_greedily,
}
