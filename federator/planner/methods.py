"""The methods by name. The papers' other methods are compared in the laboratory."""

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from operator import attrgetter
from typing import Protocol

from federator.planner.flow import exact
from federator.planner.flow.instance import Instance
from federator.planner.flow.outcome import Outcome, outcome
from federator.planner.flow.watch import UNWATCHED, Progress, Watch
from federator.planner.flow.workbench import Workbench
from federator.planner.lagrangian import heuristic

HEAD_START = 0.5
"""Share of the time limit in which the Lagrangian finds a start for HiGHS."""


class Solver(Protocol):
    """A method with its usual settings."""

    def __call__(self, instance: Instance, *, seed: int, watch: Watch) -> Outcome:
        """Solve ``instance``; report progress to ``watch``, and stop when it says so."""


class Method(StrEnum):
    """The name of a method."""

    EXACT = "exact"
    F2 = "f2"
    LAGRANGIAN = "lagrangian"
    GREEDY = "greedy"


def solve_greedily(instance: Instance, *, seed: int = 0, watch: Watch = UNWATCHED) -> Outcome:
    """Route each topic, in the order of the file, over the shortest paths that have room.

    This is what a user would write first: it proves nothing; better methods are compared with it.
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


def solve_exactly(instance: Instance, *, seed: int = 0, watch: Watch = UNWATCHED) -> Outcome:
    """The best answer to F1, or under a time limit what HiGHS makes of the Lagrangian's.

    The bound is the better one of the two.
    """
    first = _head_start(instance, seed=seed, watch=watch)
    if first.proven or watch.over():
        return replace(first, method="exact")
    second = exact.solve_f1(instance, start=first.routing, seed=seed, watch=watch)
    better = min(second, first, key=attrgetter("cost"))
    bound = max(first.lower_bound, second.lower_bound)
    return outcome(
        instance, better.routing, method="exact", lower_bound=bound, stopped=second.stopped
    )


def solve_by_arcs(
    instance: Instance,
    *,
    duplications_max: int | None = None,
    seed: int = 0,
    watch: Watch = UNWATCHED,
) -> Outcome:
    """The best answer to F2; starts from the Lagrangian's to F1 if that satisfies F2's rows."""
    start = _head_start(instance, seed=seed, watch=watch).routing
    return exact.solve_f2(
        instance, duplications_max=duplications_max, start=start, seed=seed, watch=watch
    )


def _head_start(instance: Instance, *, seed: int, watch: Watch) -> Outcome:
    """The Lagrangian's result in its share of the time."""
    share = replace(watch, time_limit_s=HEAD_START * watch.time_limit_s)
    return heuristic.solve(instance, seed=seed, watch=share)


SOLVERS: Mapping[str, Solver] = {
    Method.EXACT: solve_exactly,
    Method.F2: solve_by_arcs,
    Method.LAGRANGIAN: heuristic.solve,
    Method.GREEDY: solve_greedily,
}
