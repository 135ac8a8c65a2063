"""The result of every method: a routing, its recounted cost, and a proven bound."""

import math
from dataclasses import dataclass

from federator.planner.flow.instance import TOLERANCE, Instance
from federator.planner.flow.routing import Account, Routing, account

BOUND_ROUNDING = 1e-6
"""A proven bound above an answer by more than this share is a bug."""


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """A routing with its cost and a proven bound."""

    method: str  # which method
    routing: Routing  # the answer
    account: Account  # what it does, recounted
    cost: float  # in the method's objective: ``account.cost``, or ``account.tree_cost`` for F2
    # Proven: no routing costs less. Minus infinity when the method proves nothing.
    lower_bound: float
    stopped: str  # why it ended
    iterations: int = 0  # of the method's main loop

    @property
    def gap(self) -> float:
        """The possible saving, as a share of the cost."""
        if self.cost <= self.lower_bound + TOLERANCE or self.cost == 0:
            return 0.0
        return (self.cost - self.lower_bound) / self.cost

    @property
    def proven(self) -> bool:
        """Whether no routing is cheaper."""
        return self.cost <= self.lower_bound + TOLERANCE * max(1.0, abs(self.cost))

    @property
    def unmet(self) -> int:
        """Requests that are not served."""
        return int((~self.account.met).sum())


def outcome(
    instance: Instance,
    routing: Routing,
    *,
    method: str,
    lower_bound: float = -math.inf,
    stopped: str = "done",
    iterations: int = 0,
    by_arcs: bool = False,
) -> Outcome:
    """Recount ``routing`` and pair it with ``lower_bound``, rounded up if costs are whole."""
    counted = account(instance, routing)
    cost = counted.tree_cost if by_arcs else counted.cost
    lower_bound = whole_bound(instance, lower_bound)
    assert lower_bound <= cost + BOUND_ROUNDING * max(1.0, cost), f"{lower_bound} bounds {cost}"
    lower_bound = min(lower_bound, cost)
    return Outcome(method, routing, counted, cost, lower_bound, stopped, iterations)


def whole_bound(instance: Instance, lower_bound: float) -> float:
    """``lower_bound``, rounded up if every routing costs a whole number."""
    if not instance.costs_are_whole or not math.isfinite(lower_bound):
        return lower_bound
    return math.ceil(lower_bound - TOLERANCE * max(1.0, abs(lower_bound)))
