"""Exact placement: the linearised model (16) to (22), solved by HiGHS at gap 0.

A product of two binary variables becomes a variable psi of its own. The paper ties psi to its
factors by three inequalities each, (18) to (20), whose relaxation lets psi vanish; here rows and
columns of psi must sum to the factors, which cuts the search tree to almost nothing on instances
that take minutes otherwise, and models that are not too large say what capacities mean to two
containers at once (``placement_cuts``). Both forms have the same optima; tests compare them.

Source: papers/distributed-broker-placement.txt, section 4.2; papers/READINGS.md.
"""

from dataclasses import dataclass, field

import highspy
import numpy as np

from federator.planner.placement import (
    InfeasibleError,
    Instance,
    Ints,
    Matrix,
    Placement,
    PlacementError,
    checked,
)
from federator.planner.placement_cuts import PRODUCTS_MAX, cuts


@dataclass(slots=True)
class _Rows:
    """Constraints while they are collected: ``least <= sum value * column <= most``."""

    starts: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    least: list[float] = field(default_factory=list)
    most: list[float] = field(default_factory=list)

    def add(self, terms: list[tuple[int, float]], *, least: float, most: float) -> None:
        self.starts.append(len(self.columns))
        for column, value in terms:
            self.columns.append(column)
            self.values.append(value)
        self.least.append(least)
        self.most.append(most)


def solve_exactly(
    instance: Instance, *, time_limit_s: float, seed: int = 0, as_printed: bool = False
) -> Placement:
    """The best placement, or the best found within the time limit with its proven bound.

    Args:
        instance: What to place.
        time_limit_s: For HiGHS.
        seed: Of HiGHS's own choices.
        as_printed: Tie psi by (18) to (20) instead of the tighter sums.

    Raises:
        InfeasibleError: No placement satisfies the capacities.
        PlacementError: HiGHS refused something, or the time was too short for any placement.
    """
    solver = _prepared(time_limit_s, seed)
    if solver.passModel(_model(instance, as_printed=as_printed)) == highspy.HighsStatus.kError:
        raise PlacementError("HiGHS refused the model")
    if solver.run() == highspy.HighsStatus.kError:
        raise PlacementError("HiGHS failed")
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        raise InfeasibleError("no placement satisfies the capacities")
    info = solver.getInfo()
    usable = (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kTimeLimit)
    found = info.primal_solution_status == highspy.kSolutionStatusFeasible
    if status not in usable or not found:
        raise PlacementError(f"no placement found: {solver.modelStatusToString(status)}")
    columns = instance.containers * instance.devices
    chosen = np.array(solver.getSolution().col_value[:columns])
    device_of: Ints = chosen.reshape(instance.containers, instance.devices).argmax(axis=1)
    bound = info.mip_dual_bound if np.isfinite(info.mip_dual_bound) else 0.0
    return checked(instance, device_of, method="exact", lower_bound=float(bound))


def can_be_placed(instance: Instance, *, time_limit_s: float) -> bool | None:
    """Whether any placement satisfies the capacities; ``None``: not known within the time limit."""
    solver = _prepared(time_limit_s, seed=0)
    model = _model(instance, with_pairs=False)
    model.col_cost_ = np.zeros(model.num_col_)
    if solver.passModel(model) == highspy.HighsStatus.kError:
        raise PlacementError("HiGHS refused the model")
    solver.run()
    known = {
        highspy.HighsModelStatus.kOptimal: True,
        highspy.HighsModelStatus.kInfeasible: False,
    }
    return known.get(solver.getModelStatus())


def _prepared(time_limit_s: float, seed: int) -> highspy.Highs:
    solver = highspy.Highs()
    options: dict[str, bool | int | float] = {
        "output_flag": False,
        "mip_rel_gap": 0.0,  # the default, 1e-4, would let "optimal" mean "nearly"
        "mip_abs_gap": 0.0,
        "mip_feasibility_tolerance": 1e-9,
        "time_limit": time_limit_s,
        "random_seed": seed,
        "threads": 1,  # reruns must agree
    }
    for option, value in options.items():
        if solver.setOptionValue(option, value) != highspy.HighsStatus.kOk:
            raise PlacementError(f"HiGHS rejected option {option}={value!r}")
    return solver


def _model(
    instance: Instance, *, as_printed: bool = False, with_pairs: bool = True
) -> highspy.HighsLp:
    """Columns: x of container c on device d at c * D + d; then psi of each pair, D * D each."""
    devices, containers = instance.devices, instance.containers
    rows = _Rows()
    for c in range(containers):
        rows.add([(c * devices + d, 1.0) for d in range(devices)], least=1, most=1)
    for d in range(devices):
        capacity = float(instance.capacity[d])
        carried = [(c * devices + d, float(instance.work[c])) for c in range(containers)]
        rows.add(carried, least=0, most=capacity)
    binary = containers * devices
    pairs = instance.pairs.tolist() if with_pairs else []
    for p, (topic, service) in enumerate(pairs):
        first = binary + p * devices * devices
        tie = _as_printed if as_printed else _sums
        tie(rows, first, topic * devices, service * devices, devices)
    if not as_printed and 0 < len(pairs) * devices**2 <= PRODUCTS_MAX:
        for terms, most in cuts(instance, first_product=binary):
            rows.add(terms, least=-float("inf"), most=most)
    weights = instance.pair_power[: len(pairs)]
    pair_costs = [float(weight) * instance.hops.ravel() for weight in weights]
    cost = np.concatenate([instance.alone.ravel(), *pair_costs])
    return _lp(rows, cost, binary)


def _sums(rows: _Rows, psi: int, alpha: int, beta: int, devices: int) -> None:
    """Over d', psi sums to alpha; over d, to beta."""
    for d in range(devices):
        across = [(psi + d * devices + other, 1.0) for other in range(devices)]
        rows.add([*across, (alpha + d, -1.0)], least=0, most=0)
        down = [(psi + other * devices + d, 1.0) for other in range(devices)]
        rows.add([*down, (beta + d, -1.0)], least=0, most=0)


def _as_printed(rows: _Rows, psi: int, alpha: int, beta: int, devices: int) -> None:
    """(18), (19) and (20)."""
    infinity = float("inf")
    for d in range(devices):
        for other in range(devices):
            product = psi + d * devices + other
            rows.add([(alpha + d, 1.0), (product, -1.0)], least=0, most=infinity)
            rows.add([(beta + other, 1.0), (product, -1.0)], least=0, most=infinity)
            terms = [(product, 1.0), (alpha + d, -1.0), (beta + other, -1.0)]
            rows.add(terms, least=-1, most=infinity)


def _lp(rows: _Rows, cost: Matrix, binary: int) -> highspy.HighsLp:
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = len(cost), len(rows.least)
    lp.col_cost_ = cost
    lp.col_lower_, lp.col_upper_ = np.zeros(len(cost)), np.ones(len(cost))
    lp.row_lower_, lp.row_upper_ = np.array(rows.least), np.array(rows.most)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.array([*rows.starts, len(rows.columns)], dtype=np.int32)
    lp.a_matrix_.index_ = np.array(rows.columns, dtype=np.int32)
    lp.a_matrix_.value_ = np.array(rows.values)
    whole, real = highspy.HighsVarType.kInteger, highspy.HighsVarType.kContinuous
    lp.integrality_ = [whole] * binary + [real] * (len(cost) - binary)
    return lp
