"""A placement while it is being improved: what every move would change, kept up to date.

``pays[c, d]`` is what container c would draw on device d as everything else stands now, its flows
to other containers included. So a shift is judged by two numbers and a swap by four, and a move
costs one row per container that has a flow with what moved.
"""

import numpy as np

from federator.planner.placement import Instance, Ints, Matrix, room

NOWHERE = -1

PRICED_SHARE = 1e-4
"""Of the smallest workload: an overload of that much costs more than any move can save."""


class State:
    """Where each container is, or ``NOWHERE``. Overload is allowed at a price.

    Args:
        instance: What is being placed.

    Attributes:
        device_of: Shape (T + S,).
        pays: Shape (T + S, D), mW.
        load: Shape (D,), workload.
        price: mW per workload beyond a capacity; more than any move can save.
    """

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.device_of: Ints = np.full(instance.containers, NOWHERE, dtype=np.intp)
        self.pays: Matrix = instance.alone.copy()
        self.load: Matrix = np.zeros(instance.devices)
        self._room = room(instance)
        self._work = instance.work
        self._flows: list[tuple[Ints, Matrix]] = _flows(instance)
        least_work = float(self._work[self._work > 0].min()) if self._work.any() else 1.0
        tied = sum(float(mw.sum()) for _, mw in self._flows) * float(instance.hops.max())
        dear = float(instance.alone.max(initial=0.0)) + tied + 1.0
        self.price = dear / (least_work * PRICED_SHARE)

    def copy_from(self, other: "State") -> None:
        """Be as ``other``, of the same instance."""
        self.device_of[:] = other.device_of
        self.pays[:] = other.pays
        self.load[:] = other.load

    @property
    def overload(self) -> float:
        """Workload beyond capacities, on all devices."""
        return float(np.maximum(self.load - self._room, 0.0).sum())

    def put(self, c: int, d: int) -> None:
        """Place a container that is nowhere."""
        self.device_of[c] = d
        self.load[d] += self._work[c]
        others, mw = self._flows[c]
        self.pays[others] += mw[:, None] * self.instance.hops[d]

    def lift(self, c: int) -> None:
        """Take a container away."""
        d = self.device_of[c]
        self.device_of[c] = NOWHERE
        self.load[d] -= self._work[c]
        others, mw = self._flows[c]
        self.pays[others] -= mw[:, None] * self.instance.hops[d]

    def cost_of_putting(self, c: int) -> Matrix:
        """Per device, what it costs to put a container there that is nowhere, shape (D,)."""
        beyond = self.load + self._work[c] - self._room
        excess = np.minimum(np.maximum(beyond, 0.0), self._work[c])
        costs: Matrix = self.pays[c] + self.price * excess
        return costs

    def improve(self, c: int) -> tuple[int, ...]:
        """Make the best shift or swap of ``c``, if one saves anything; return what moved."""
        here = int(self.device_of[c])
        shift = self._shift_savings(c, here)
        to = int(shift.argmax())
        swap = self._swap_savings(c, here)
        partner = int(swap.argmax())
        least = 1e-9 * (1.0 + float(self.pays[c, here]))
        least += 1e-13 * self.price * float(self.load.max())  # what rounding may pretend
        if max(shift[to], swap[partner]) <= least:
            return ()
        there = to if shift[to] >= swap[partner] else int(self.device_of[partner])
        self.lift(c)
        swapped = shift[to] < swap[partner]
        if swapped:
            self.lift(partner)
            self.put(partner, here)
        self.put(c, there)
        return (c, partner) if swapped else (c,)

    def partners(self, c: int) -> Ints:
        """Containers that have a flow with ``c``."""
        return self._flows[c][0]

    def _shift_savings(self, c: int, here: int) -> Matrix:
        work = self._work[c]
        before = np.maximum(self.load - self._room, 0.0)
        after = np.maximum(self.load + work - self._room, 0.0)
        relief = before[here] - max(self.load[here] - work - self._room[here], 0.0)
        saved: Matrix = self.pays[c, here] - self.pays[c] + self.price * (relief - after + before)
        saved[here] = 0.0
        return saved

    def _swap_savings(self, c: int, here: int) -> Matrix:
        """Per other container, what exchanging places saves."""
        there = self.device_of
        everyone = np.arange(len(there))
        saved: Matrix = self.pays[c, here] - self.pays[c, there]
        saved += self.pays[everyone, there] - self.pays[:, here]
        others, mw = self._flows[c]
        saved[others] -= 2.0 * mw * self.instance.hops[here, there[others]]
        grows = self._work[c] - self._work  # of the partner's device
        over = np.maximum(self.load - self._room, 0.0)
        over_here = np.maximum(self.load[here] - grows - self._room[here], 0.0)
        over_there = np.maximum(self.load[there] + grows - self._room[there], 0.0)
        saved += self.price * (over[here] - over_here + over[there] - over_there)
        saved[there == here] = 0.0
        return saved


def _flows(instance: Instance) -> list[tuple[Ints, Matrix]]:
    """Per container: the containers it has flows with, and mW per hop of each flow."""
    weights = instance.network_power * instance.shared_traffic
    brokers = [(row.nonzero()[0] + instance.topics, row[row > 0]) for row in weights]
    services = [(column.nonzero()[0], column[column > 0]) for column in weights.T]
    return [*brokers, *services]
