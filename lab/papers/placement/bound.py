"""A proven lower bound on power, for sizes where the exact model does not fit.

Two ideas of Lagrange. Each device charges a price per workload, and what its capacity is worth at
that price is given back: then capacities need not hold. And each pair's power, which depends on
two containers, is split into two parts that depend on one each and nowhere exceed it together.
What is left decides every container alone: take its cheapest device. Any prices and any split give
a bound; prices rise where devices are overfull (subgradient), and splits are improved pair by pair
so that no step makes the bound worse (max-product linear programming).

Source: Fisher 1981 (prices); Globerson and Jaakkola 2007 (splits); docs/placement.md 2.
"""

from dataclasses import dataclass

import numpy as np

from lab.papers.placement.hops import Matrix
from lab.papers.placement.instance import Instance


@dataclass(slots=True, eq=False)
class _Dual:
    """Prices, splits, and what each container pays on each device under them."""

    pays: Matrix  # shape (T + S, D): power alone, its parts of pairs, and prices
    prices: Matrix  # shape (D,), mW per workload
    parts: Matrix  # shape (P, 2, D): what the first and the second container of a pair bear

    def value(self, instance: Instance) -> float:
        return float(self.pays.min(axis=1).sum() - self.prices @ instance.capacity)


def lower_bound(
    instance: Instance, *, price_steps: int, split_passes: int, target: float | None = None
) -> float:
    """The best bound found, at least 0, in so many passes over the pairs.

    Subgradient steps follow each pass, and come once before; ``target``, the power of a known
    placement, guides their length.
    """
    pairs = len(instance.pairs)
    dual = _Dual(
        instance.alone.copy(), np.zeros(instance.devices), np.zeros((pairs, 2, instance.devices))
    )
    goal = target if target is not None else 1.1 * max(dual.value(instance), 0.0)
    best = _raise_prices(instance, dual, goal, price_steps)
    for _ in range(split_passes if pairs else 0):
        _improve_splits(instance, dual)
        best = max(best, dual.value(instance))
        best = max(best, _raise_prices(instance, dual, goal, price_steps))
    return max(best, 0.0)


def _raise_prices(instance: Instance, dual: _Dual, goal: float, steps: int) -> float:
    """Subgradient steps of Polyak's length; leaves the best prices behind."""
    best, best_prices = dual.value(instance), dual.prices.copy()
    bold, stalled = 1.0, 0
    for _ in range(steps):
        wish = dual.pays.argmin(axis=1)
        demand = np.bincount(wish, weights=instance.work, minlength=instance.devices)
        slope = demand - instance.capacity
        slope[(dual.prices <= 0) & (slope < 0)] = 0.0
        norm = float(slope @ slope)
        if norm == 0:
            break
        length = bold * max(goal - dual.value(instance), 0.0) / norm
        _charge(instance, dual, np.maximum(dual.prices + length * slope, 0.0))
        value = dual.value(instance)
        stalled += 1
        if value > best:
            best, best_prices, stalled = value, dual.prices.copy(), 0
        elif stalled >= 5:
            bold, stalled = bold / 2, 0
    _charge(instance, dual, best_prices)
    return best


def _charge(instance: Instance, dual: _Dual, prices: Matrix) -> None:
    dual.pays += np.outer(instance.work, prices - dual.prices)
    dual.prices = prices


def _improve_splits(instance: Instance, dual: _Dual) -> None:
    """Give each pair's power, one pair after the other, to where it raises the bound."""
    hops = instance.hops
    for p, (first, second) in enumerate(instance.pairs.tolist()):
        between = instance.pair_power[p] * hops
        one = dual.pays[first] - dual.parts[p, 0]
        two = dual.pays[second] - dual.parts[p, 1]
        dual.parts[p, 0] = 0.5 * ((between + two).min(axis=1) - one)
        dual.parts[p, 1] = 0.5 * ((between.T + one).min(axis=1) - two)
        dual.pays[first] = one + dual.parts[p, 0]
        dual.pays[second] = two + dual.parts[p, 1]
