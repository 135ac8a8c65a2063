"""Routing methods side by side, the product's and those that only compare.

Source: Manzoni 2022, Table 2.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from federator.planner.flow import exact
from federator.planner.flow.outcome import Outcome
from federator.planner.methods import SOLVERS, Solver
from lab.papers.flow import annealing, local_split
from lab.papers.pricing import world

METHODS: Mapping[str, Solver] = {
    # As plain words: of an enumeration's members the command line would offer their names.
    **{str(method): solver for method, solver in SOLVERS.items()},
    # HiGHS alone: what it proves of the Lagrangian must not come from the Lagrangian.
    "exact": exact.solve_f1,
    "f2": exact.solve_f2,
    "distributed": world.solve,
    "split": local_split.solve,
    "annealing": annealing.solve,
}


@dataclass(frozen=True, slots=True)
class PaperRow:
    """A row of the paper's Table 2; None is its "n.a."."""

    exact_s: float  # seconds of CPLEX
    lagrangian_s: float  # seconds of the Lagrangian heuristic, which was optimal throughout
    lagrangian_proven: bool  # whether it proved that itself
    annealing_s: float | None  # seconds of annealing
    annealing_gap: float | None  # mean, in percent
    annealing_optimal: int  # of 5 runs


TABLE_2 = {
    "tinyInstance": PaperRow(0.3, 0.01, True, 1.8, 0, 5),
    "case2": PaperRow(0.3, 0.07, True, 12.3, 12, 3),
    "case3": PaperRow(0.4, 0.08, True, 68.5, 74, 1),
    "res0": PaperRow(0.4, 0.07, True, 56.0, 68, 2),
    "res5": PaperRow(67.9, 0.35, False, 78.9, 209, 0),
    "res7": PaperRow(75.2, 1.21, False, None, None, 0),
}
"""The paper's Table 2, less res4, whose size is not given."""


@dataclass(frozen=True, slots=True)
class Run:
    """One method on one instance."""

    group: str  # what it is averaged with
    instance: str  # its name
    method: str  # which
    seconds: float  # of wall clock
    cost: float  # in the method's own objective
    lower_bound: float  # proven by the method itself
    gap: float  # proven by the method itself
    proven: bool  # whether the method proved its answer best
    unmet: int  # requests not served


def run_of(group: str, name: str, method: str, seconds: float, outcome: Outcome) -> Run:
    return Run(
        group=group,
        instance=name,
        method=method,
        seconds=seconds,
        cost=outcome.cost,
        lower_bound=outcome.lower_bound,
        gap=outcome.gap if math.isfinite(outcome.lower_bound) else math.inf,
        proven=outcome.proven,
        unmet=outcome.unmet,
    )


@dataclass(frozen=True, slots=True)
class Summary:
    """One method over the instances of a group."""

    group: str
    method: str
    runs: int  # how many
    seconds: float  # mean
    cost: float  # mean
    gap_to_best: float | None  # mean excess over what the exact method proved best, if it did
    gap_worst: float | None  # largest such excess
    optimal: int | None  # runs that reached it
    proven: int  # runs that the method proved best itself
    bound_held: bool | None  # whether no bound exceeded the cost proved best
    unmet: float  # mean


def summarise(runs: Sequence[Run]) -> list[Summary]:
    best = {run.instance: run.cost for run in runs if run.method == "exact" and run.proven}
    keys = list(dict.fromkeys((run.group, run.method) for run in runs))
    return [_summary(group, method, runs, best) for group, method in keys]


def _summary(group: str, method: str, runs: Sequence[Run], best: dict[str, float]) -> Summary:
    these = [run for run in runs if (run.group, run.method) == (group, method)]
    known = [run for run in these if run.instance in best] if method != "f2" else []
    gaps = [run.cost / best[run.instance] - 1 for run in known]
    held = [run.lower_bound <= best[run.instance] * (1 + 1e-9) + 1e-6 for run in known]
    return Summary(
        group=group,
        method=method,
        runs=len(these),
        seconds=fmean(run.seconds for run in these),
        cost=fmean(run.cost for run in these),
        gap_to_best=fmean(gaps) if gaps else None,
        gap_worst=max(gaps) if gaps else None,
        optimal=sum(gap < 1e-9 for gap in gaps) if gaps else None,
        proven=sum(run.proven for run in these),
        bound_held=all(held) if held else None,
        unmet=fmean(run.unmet for run in these),
    )
