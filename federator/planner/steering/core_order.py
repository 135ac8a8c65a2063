"""An order of brokers as cores, such that each mesh's first member serves it best.

The core of a filter is the first, in the order of priorities, of the brokers with clients that want
it. Publications travel from their broker to the core, and from the core to every member, so a core
costs messages times hops, as a broker container does in the placement model. Priorities belong to
brokers, not to filters: one order serves all meshes, and may not give each its best core.

Source: Fawwaz 2022, 4.2 (10); docs/placement.md 5.
"""

import numpy as np
import numpy.typing as npt

from federator.planner.flow.watch import Watch

Matrix = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]

PASSES_MAX = 20


def costs_of(far: Matrix, member: npt.NDArray[np.bool_], rates: Matrix) -> Matrix:
    """The cost per second of one mesh with each broker as its core, infinite for non-members.

    Args:
        far: The distance from each broker to each, finite, shape (B, B).
        member: Whether the broker's clients want the filter, shape (B,).
        rates: Messages per second that each broker's clients publish to the mesh, shape (B,).
    """
    reach = far.T @ rates + rates.sum() * (far @ member)
    return np.where(member, reach, np.inf)


def cost_of(costs: Matrix, order: Ints) -> float:
    """The cost of an order, in which each mesh's first member is its core."""
    return float(costs[np.arange(len(costs)), cores_of(costs, order)].sum())


def cores_of(costs: Matrix, order: Ints) -> Ints:
    """The core of each mesh: its first member in ``order``."""
    cores: Ints = order[np.isfinite(costs[:, order]).argmax(axis=1)]
    return cores


def improved(costs: Matrix, start: Ints, *, count: int, watch: Watch) -> Ints:
    """``start``, with brokers moved within the order as long as any move helps.

    Args:
        count: Only the first ``count`` of ``start`` move, among themselves.
    """
    best, best_cost = start, cost_of(costs, start)
    for _ in range(PASSES_MAX):
        before = best_cost
        for broker in sorted(start[:count].tolist()):
            rest = best[best != broker]
            for at in range(count):
                candidate = np.insert(rest, at, broker)
                cost = cost_of(costs, candidate)
                if cost < best_cost - 1e-9:
                    best, best_cost = candidate, cost
            if watch.over():
                return best
        if best_cost >= before:
            break
    return best
