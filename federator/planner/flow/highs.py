"""HiGHS with explicit options: gap 0, seed, one thread, time limit; every status is checked.

HiGHS prints instead of raising when an option is wrong, and by default calls an answer optimal
within a relative gap of 1e-4.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import highspy
import numpy as np

from federator.errors import FederatorError
from federator.planner.flow.instance import FloatArray
from federator.planner.flow.watch import Watch


class SolverError(FederatorError):
    """HiGHS refused a model or an option, or stopped without a usable answer."""


@dataclass(slots=True)
class Model:
    """A mixed integer programme to minimise, built row by row."""

    cost: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    whole: list[bool] = field(default_factory=list)
    row_lower: list[float] = field(default_factory=list)
    row_upper: list[float] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def column(self, cost: float, upper: float, *, whole: bool) -> int:
        """Add a variable between 0 and ``upper``; return its number."""
        self.cost.append(cost)
        self.upper.append(upper)
        self.whole.append(whole)
        return len(self.cost) - 1

    def row(self, terms: list[tuple[int, float]], *, least: float, most: float) -> None:
        """Add ``least <= sum of value * column <= most``. Each column may occur once."""
        self.starts.append(len(self.columns))
        for column, value in terms:
            self.columns.append(column)
            self.values.append(value)
        self.row_lower.append(least)
        self.row_upper.append(most)


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """The result of HiGHS."""

    values: FloatArray | None  # of each column, or None without a feasible solution
    lower_bound: float  # proven
    stopped: str  # HiGHS's status text
    optimal: bool  # whether HiGHS proved the answer best, at gap 0
    row_duals: FloatArray  # price of each row where no column is whole; empty otherwise


_Status = highspy.HighsModelStatus
_USABLE = (_Status.kOptimal, _Status.kTimeLimit, _Status.kInterrupt, _Status.kSolutionLimit)


def minimise(
    model: Model,
    *,
    seed: int,
    watch: Watch,
    nodes_max: int | None = None,
    start: FloatArray | None = None,
    on_progress: Callable[[float, float], None] | None = None,
) -> Answer:
    """Solve ``model``; raise ``SolverError`` if HiGHS refuses it, or has no answer.

    It ends when ``watch`` says so, or after ``nodes_max`` nodes of branch and bound; now and then
    ``on_progress`` is called with (best cost, bound). ``start`` has an initial value for each
    column; an infeasible one is ignored.
    """
    solver = prepared(model, seed=seed, time_limit_s=watch.left_s(), nodes_max=nodes_max)
    if start is not None:
        solution = highspy.HighsSolution()
        solution.col_value = start.tolist()
        solver.setSolution(solution)

    def on_interrupt(event: highspy.HighsCallbackEvent) -> None:
        if on_progress is not None:
            on_progress(event.data_out.mip_primal_bound, event.data_out.mip_dual_bound)
        if watch.over():
            assert event.data_in is not None
            event.data_in.user_interrupt = True

    solver.cbMipInterrupt.subscribe(on_interrupt)
    solver.HandleUserInterrupt = True
    if highspy.Highs.run(solver) == highspy.HighsStatus.kError:
        raise SolverError("HiGHS failed")
    status = solver.getModelStatus()
    text = solver.modelStatusToString(status)
    if status not in _USABLE:
        raise SolverError(f"HiGHS stopped without an answer: {text}")
    info = solver.getInfo()
    feasible = info.primal_solution_status == highspy.kSolutionStatusFeasible
    values = np.array(solver.getSolution().col_value) if feasible else None
    bound = info.mip_dual_bound if any(model.whole) else info.objective_function_value
    if not math.isfinite(bound):
        bound = -math.inf
    optimal = status == _Status.kOptimal
    duals = np.array(solver.getSolution().row_dual if not any(model.whole) else [])
    return Answer(values, bound, text.lower(), optimal, duals)


def prepared(
    model: Model,
    *,
    seed: int,
    time_limit_s: float,
    nodes_max: int | None = None,
    whole_within: float | None = None,
) -> highspy.Highs:
    """A solver ready to run ``model``; raises ``SolverError`` if HiGHS refuses it or an option.

    It ends after ``time_limit_s``, which may be infinite, or ``nodes_max`` nodes of branch and
    bound. A whole variable may be ``whole_within`` of a whole number; None: HiGHS's own tolerance.
    """
    solver = highspy.Highs()
    options: dict[str, bool | int | float] = {
        "output_flag": False,
        "mip_rel_gap": 0.0,  # the default, 1e-4, would let "optimal" mean "nearly"
        "mip_abs_gap": 0.0,
        "random_seed": seed,
        "threads": 1,  # reruns must agree
    }
    if math.isfinite(time_limit_s):
        options["time_limit"] = time_limit_s
    if nodes_max is not None:
        options["mip_max_nodes"] = nodes_max
    if whole_within is not None:
        options["mip_feasibility_tolerance"] = whole_within
    for option, value in options.items():
        if solver.setOptionValue(option, value) != highspy.HighsStatus.kOk:
            raise SolverError(f"HiGHS rejected option {option}={value!r}")
    if solver.passModel(_lp(model)) == highspy.HighsStatus.kError:
        raise SolverError("HiGHS refused the model")
    return solver


def _lp(model: Model) -> highspy.HighsLp:
    lp = highspy.HighsLp()
    lp.num_col_ = len(model.cost)
    lp.num_row_ = len(model.row_lower)
    lp.col_cost_ = np.array(model.cost)
    lp.col_lower_ = np.zeros(len(model.cost))
    lp.col_upper_ = np.array(model.upper)
    lp.row_lower_ = np.array(model.row_lower)
    lp.row_upper_ = np.array(model.row_upper)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.array([*model.starts, len(model.columns)], dtype=np.int32)
    lp.a_matrix_.index_ = np.array(model.columns, dtype=np.int32)
    lp.a_matrix_.value_ = np.array(model.values)
    kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
    lp.integrality_ = [kinds[whole] for whole in model.whole]
    return lp
