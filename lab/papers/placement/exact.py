"""Exact placement: the linearised model (16) to (22), solved by HiGHS at gap 0.

A product of two binary variables becomes a variable psi of its own. The paper ties psi to its
factors by three inequalities each, (18) to (20), whose relaxation lets psi vanish; here rows and
columns of psi must sum to the factors, which cuts the search tree to almost nothing on instances
that take minutes otherwise, and models that are not too large say what capacities mean to two
containers at once (``cuts``). Both forms have the same optima; tests compare them.

Source: Fawwaz 2022, 4.2; docs/placement.md 2; for ``cuts``, Sherali and Adams 1990 and Balas 1975.
"""

from collections.abc import Iterator
from typing import Final

import highspy
import numpy as np

from federator.planner.flow.highs import Model, SolverError, prepared
from lab.papers.placement.hops import Ints, Matrix, PlacementError
from lab.papers.placement.instance import InfeasibleError, Instance, Placement, checked, room

WHOLE_WITHIN: Final = 1e-9  # how far from 0 or 1 a choice of HiGHS may be


def solve_exactly(
    instance: Instance, *, time_limit_s: float, seed: int = 0, as_printed: bool = False
) -> Placement:
    """The best placement, or the best found within the time limit with its proven bound.

    ``as_printed``: tie psi by (18) to (20) instead of the tighter sums.

    Raises:
        InfeasibleError: No placement satisfies the capacities.
        SolverError: HiGHS refused something.
        PlacementError: The time was too short for any placement.
    """
    model = _model(instance, as_printed=as_printed)
    solver = prepared(model, seed=seed, time_limit_s=time_limit_s, whole_within=WHOLE_WITHIN)
    if solver.run() == highspy.HighsStatus.kError:
        raise SolverError("HiGHS failed")
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
    model = _model(instance, with_pairs=False)
    model.cost = [0.0] * len(model.cost)
    solver = prepared(model, seed=0, time_limit_s=time_limit_s, whole_within=WHOLE_WITHIN)
    solver.run()
    status = highspy.HighsModelStatus
    known = {status.kOptimal: True, status.kInfeasible: False}
    return known.get(solver.getModelStatus())


def _model(instance: Instance, *, as_printed: bool = False, with_pairs: bool = True) -> Model:
    """Columns: x of container c on device d at c * D + d; then psi of each pair, D * D each."""
    devices, containers = instance.devices, instance.containers
    model = Model()
    for cost in instance.alone.ravel().tolist():
        model.column(cost, 1.0, whole=True)
    for c in range(containers):
        model.row([(c * devices + d, 1.0) for d in range(devices)], least=1, most=1)
    for d in range(devices):
        capacity = float(instance.capacity[d])
        carried = [(c * devices + d, float(instance.work[c])) for c in range(containers)]
        model.row(carried, least=0, most=capacity)
    binary = containers * devices
    pairs = instance.pairs.tolist() if with_pairs else []
    for p, (topic, service) in enumerate(pairs):
        first = binary + p * devices * devices
        for cost in (float(instance.pair_power[p]) * instance.hops.ravel()).tolist():
            model.column(cost, 1.0, whole=False)
        tie = _as_printed if as_printed else _sums
        tie(model, first, topic * devices, service * devices, devices)
    if not as_printed and 0 < len(pairs) * devices**2 <= PRODUCTS_MAX:
        for terms, most in cuts(instance, first_product=binary):
            model.row(terms, least=-float("inf"), most=most)
    return model


def _sums(model: Model, psi: int, alpha: int, beta: int, devices: int) -> None:
    """Over d', psi sums to alpha; over d, to beta."""
    for d in range(devices):
        across = [(psi + d * devices + other, 1.0) for other in range(devices)]
        model.row([*across, (alpha + d, -1.0)], least=0, most=0)
        down = [(psi + other * devices + d, 1.0) for other in range(devices)]
        model.row([*down, (beta + d, -1.0)], least=0, most=0)


def _as_printed(model: Model, psi: int, alpha: int, beta: int, devices: int) -> None:
    """Tie psi to its factors by (18), (19) and (20)."""
    infinity = float("inf")
    for d in range(devices):
        for other in range(devices):
            product = psi + d * devices + other
            model.row([(alpha + d, 1.0), (product, -1.0)], least=0, most=infinity)
            model.row([(beta + other, 1.0), (product, -1.0)], least=0, most=infinity)
            terms = [(product, 1.0), (alpha + d, -1.0), (beta + other, -1.0)]
            model.row(terms, least=-1, most=infinity)


PRODUCTS_MAX: Final = 20_000
"""Products of two variables in a model; of larger ones the rows cost more than they save."""

Cut = tuple[list[tuple[int, float]], float]
"""Columns with their values, and the most they may sum to."""


def cuts(instance: Instance, *, first_product: int) -> Iterator[Cut]:
    """Rows that tell the linear model what capacities mean to two containers at once.

    The relaxation lets a container spread over all devices in equal parts, each part beside the
    same part of whatever it has flows with: no hop is paid, and nothing seems overfull. But where a
    container is, its partners find only the room that it leaves. For container c on device d, and
    every device e, over the partners o of c:

        sum_o work_o psi(o on e, c on d)  <=  room x(c on d),    room = C_e, less work_c if e is d

    which is the capacity of e times x (reformulation-linearisation, of the pairs that have flows).
    And since partners are whole, of any set of them at most as many fit as its smallest do
    (extended covers): sum_o psi(o on e, c on d) <= count x(c on d).

    ``first_product`` is the column of the first pair's first product; x stand before it. The psi of
    pair p begin at ``first_product + p * D * D``.
    """
    devices, capacity = instance.devices, room(instance)
    for c in range(instance.containers):
        pairs, others = _partners(instance, c)
        order = np.argsort(instance.work[others], kind="stable")
        pairs, work = pairs[order], instance.work[others[order]]
        is_first = instance.pairs[pairs, 0] != c  # of the pair: its device counts rows of psi
        starts = first_product + pairs * devices**2
        for here in range(devices):
            for there in range(devices):
                left = float(capacity[there] - (instance.work[c] if here == there else 0.0))
                places = np.where(is_first, there * devices + here, here * devices + there)
                yield from _of_one(starts + places, work, left, c * devices + here)


def _of_one(columns: Ints, work: Matrix, left: float, own: int) -> Iterator[Cut]:
    """Cuts over partners by rising workload, of which ``left`` fits where ``own`` is chosen."""
    if work.sum() <= left:
        return
    weighted = zip(columns.tolist(), work.tolist(), strict=True)
    yield [*weighted, (own, -max(left, 0.0))], 0.0
    former = None
    for at in range(len(work)):
        fit = int(np.searchsorted(np.cumsum(work[at:]), left, side="right"))
        if fit == len(work) - at:
            return
        if fit != former:  # a smaller set of the same count says nothing new
            yield [*((column, 1.0) for column in columns[at:].tolist()), (own, -float(fit))], 0.0
        former = fit


def _partners(instance: Instance, c: int) -> tuple[Ints, Ints]:
    """Pairs of ``c``, and who the other one is."""
    pairs = np.flatnonzero((instance.pairs == c).any(axis=1))
    both = instance.pairs[pairs]
    return pairs, np.where(both[:, 0] == c, both[:, 1], both[:, 0])
