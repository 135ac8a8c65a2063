"""Cores where the traffic is: an order of brokers in which each mesh's first member serves it best.

The core of a filter is the first, in the order of priorities, of the brokers whose clients want it.
Publications travel from their broker to the core, and from the core to every member, so a core
costs messages times hops, as a broker container does in the placement model. Priorities belong to
brokers, not to filters: one order serves all meshes, and may not give each its best core. The bound
says what that costs at most: no choice of cores, filter by filter, can do better.

Source: Fawwaz 2022, 4.2 (10); docs/placement.md 5.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import shortest_path

from federator.errors import FederatorError
from federator.planner.delegation.live import Broker
from federator.planner.flow.watch import UNWATCHED, Watch
from federator.protocol.filters import matches

Matrix = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]

PASSES_MAX = 20
RESTARTS_MAX, RESTART_UNITS = 20, 20_000_000


class PlacementError(FederatorError):
    """A problem makes no sense, the solver refused it, or it gave no usable answer."""


@dataclass(frozen=True, slots=True, eq=False)
class Meshes:
    """The meshes of B brokers' filters, those with the same members taken together (G kinds)."""

    ids: Sequence[int]  # shape (B,), of the brokers, ascending
    # Shape (G, B): messages times hops per second if that broker is the core; infinite for brokers
    # that are no members.
    costs: Matrix


@dataclass(frozen=True, slots=True, eq=False)
class CorePlan:
    """An order of brokers as cores, and what it costs."""

    # By broker; all below 0, so that brokers without a plan come last.
    priorities: Mapping[int, int]
    cost: float  # messages times hops per second under these priorities
    smallest_id_cost: float  # the same when the smallest id is the core
    lower_bound: float  # proven: no choice of cores costs less


def meshes(brokers: Sequence[Broker], links: Sequence[tuple[int, int]]) -> Meshes:
    """Costs of all cores. Raises ``PlacementError``: a broker is unknown, or out of reach."""
    ordered = sorted(brokers, key=lambda broker: broker.id)
    ids = [broker.id for broker in ordered]
    hops = _hops(ids, links)
    by_members: dict[bytes, Matrix] = {}
    for filter in sorted({filter for broker in ordered for filter in broker.subscribes}):
        member = np.array([filter in broker.subscribes for broker in ordered])
        rates = np.array(
            [
                sum(rate for topic, rate in broker.publishes.items() if matches(filter, topic))
                for broker in ordered
            ]
        )
        key = member.tobytes()
        by_members[key] = by_members.get(key, 0.0) + costs_of(hops, member, rates)
    if not by_members:
        return Meshes(ids, np.zeros((0, len(ids))))
    return Meshes(ids, np.stack(list(by_members.values())))


def costs_of(far: Matrix, member: npt.NDArray[np.bool_], rates: Matrix) -> Matrix:
    """What one mesh costs per second with each broker as its core, infinite for no members.

    Args:
        far: From each broker to each, finite, shape (B, B).
        member: Whose clients want its filter, shape (B,).
        rates: Messages per second that each broker's clients publish to it, shape (B,).
    """
    reach = far.T @ rates + rates.sum() * (far @ member)
    return np.where(member, reach, np.inf)


def order(costs: Matrix) -> Ints:
    """Brokers by falling preference: insertion moves from several starts while any helps."""
    brokers = costs.shape[1]
    rng = np.random.default_rng(0)
    restarts = min(RESTARTS_MAX, RESTART_UNITS // max(1, brokers**3 * len(costs)))
    starts: list[Ints] = [np.arange(brokers), _by_regret(costs)]
    starts += [rng.permutation(brokers) for _ in range(restarts)]
    return min((improved(costs, start) for start in starts), key=lambda o: cost_of(costs, o))


def cost_of(costs: Matrix, order: Ints) -> float:
    """The cost of an order, in which each mesh's first member is its core."""
    if not costs.size:
        return 0.0
    first = np.isfinite(costs[:, order]).argmax(axis=1)
    return float(costs[np.arange(len(costs)), order[first]].sum())


def place_cores(brokers: Sequence[Broker], links: Sequence[tuple[int, int]]) -> CorePlan:
    """Priorities for all ``brokers``; ``links`` join neighbours, by id. Raises as ``meshes``."""
    found = meshes(brokers, links)
    best = order(found.costs)
    count = len(found.ids)
    return CorePlan(
        priorities={found.ids[b]: rank - count for rank, b in enumerate(best.tolist())},
        cost=cost_of(found.costs, best),
        smallest_id_cost=cost_of(found.costs, np.arange(count)),
        lower_bound=float(found.costs.min(axis=1).sum()) if found.costs.size else 0.0,
    )


def _by_regret(costs: Matrix) -> Ints:
    """First who, as a core of all its meshes, costs least beyond what they must cost."""
    if not costs.size:
        return np.arange(costs.shape[1])
    beyond = np.where(np.isfinite(costs), costs - costs.min(axis=1, keepdims=True), 0.0)
    return np.argsort(beyond.sum(axis=0), kind="stable")


def improved(
    costs: Matrix, start: Ints, *, count: int | None = None, watch: Watch = UNWATCHED
) -> Ints:
    """``start``, with brokers inserted elsewhere for as long as any such move helps.

    Args:
        count: Of ``start`` so many may move, among themselves: the first. All by default.
    """
    count = len(start) if count is None else count
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


def _hops(ids: Sequence[int], links: Sequence[tuple[int, int]]) -> Matrix:
    place = {id: at for at, id in enumerate(ids)}
    linked = np.zeros((len(ids), len(ids)), dtype=bool)
    for a, b in links:
        if a not in place or b not in place:
            raise PlacementError(f"link {a}-{b}: brokers {sorted(place)} are known")
        linked[place[a], place[b]] = linked[place[b], place[a]] = True
    hops = hops_of(linked)
    if not np.isfinite(hops).all():
        lost = [ids[at] for at in np.flatnonzero(~np.isfinite(hops[0])).tolist()]
        raise PlacementError(f"no way leads from broker {ids[0]} to {lost[:5]}")
    return hops


def hops_of(linked: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """Hops between all nodes, inf where no way leads; ``linked`` is symmetric; shapes (D, D)."""
    hops: npt.NDArray[np.float64] = shortest_path(linked, unweighted=True)
    return hops
