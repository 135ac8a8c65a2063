"""The Lagrangian relaxation of capacities, and a bound that is a bound.

One price per channel. The relaxed problem asks, topic by topic, for the tree that is cheapest when
its requests pay ``cost`` along their paths and the topic pays ``price * rate`` once for each arc: a
Steiner problem, which the paper's Dijkstra overestimates. Letting each request pay a **share** of
``price * rate`` gives a value that never exceeds it, as long as the shares of one arc add up to 1
at most over the requests of a topic: the requests on an arc pay together no more than its price.
So

    bound = sum over requests of min(penalty, shortest path under cost + share * price * rate)
            - sum over channels of price * capacity

is valid for all prices and shares. If some requests must stay unmet (``shortage``), those that
gain least from being served pay their penalty as well. Two ways to share:

- ``equal``: 1 / abs(T) of it each. All requests of a topic see the same lengths: one tree per
  topic. Used at scale.
- ``fitted``: shares follow recent usage of the arc; a request alone on an arc pays all. One tree
  per request, and a bound that tends to that of the strong linear relaxation.

Source: Manzoni 2022, (20)-(21); docs/planner.md 4.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from federator.planner.flow.instance import FloatArray, Instance
from federator.planner.flow.shortest_paths import CHUNK_NODES, ShortestPaths

HABIT = 0.9
"""The weight of earlier usage when shares are fitted."""
FAINT = 1e-3
"""The minimum usage credited to each request, so that no share vanishes for good."""


@dataclass(frozen=True, slots=True, eq=False)
class Relaxed:
    """The relaxed problem at some prices."""

    bound: float  # no routing costs less
    slope: FloatArray  # load less capacity, as the relaxation counts, shape (E,)
    topic_value: FloatArray  # the contribution of each topic to the bound, shape (K,)


class Relaxation:
    """The relaxed problem, ready to be solved at any prices.

    ``paths`` is its graph. ``fitted`` shares take R * A numbers.
    """

    def __init__(self, instance: Instance, paths: ShortestPaths, *, fitted: bool) -> None:
        self.instance = instance
        self.paths = paths
        self.unmet_least = 0  # proven: every routing leaves as many requests unmet
        self._fitted = fitted
        self._usable = np.stack([instance.usable(k) for k in range(instance.topics)])
        all_requests = np.arange(instance.requests)
        self._layer_of = all_requests if fitted else instance.request_topic
        self._topic_of = instance.request_topic if fitted else np.arange(instance.topics)
        fan_out = instance.fan_out.astype(np.float64)
        self._share = (1.0 / fan_out)[self._topic_of][:, None]
        if fitted:
            self._share = np.repeat(self._share, instance.arcs, axis=1)
            self._usage = np.zeros((instance.requests, instance.arcs))

    def solve(
        self, prices: FloatArray, *, stop: Callable[[], bool] = lambda: False
    ) -> Relaxed | None:
        """Solve at ``prices``, shape (E,); None if ``stop`` returned True on the way."""
        instance = self.instance
        layers = len(self._topic_of)
        chunk = max(1, CHUNK_NODES // instance.nodes)
        value = np.empty(instance.requests)
        load = np.zeros(len(instance.capacity), dtype=np.float64)
        toll = prices[instance.channel]
        if self._fitted:
            self._usage *= HABIT
        for first in range(0, layers, chunk):
            if stop():
                return None
            self._solve_part(first, min(first + chunk, layers), toll, value, load)
        if self._fitted:
            self._fit()
        topic_value = np.add.reduceat(value, instance.first_request[:-1])
        bound = float(value.sum() + self._left_out(value) - prices @ instance.capacity)
        return Relaxed(bound, load - instance.capacity, topic_value)

    def _left_out(self, value: FloatArray) -> float:
        """The added cost of ``unmet_least`` unmet requests, choosing those that lose least."""
        lost = np.sort(self.instance.unmet_penalty - value)
        return float(lost[: self.unmet_least].sum())

    def _solve_part(
        self, first: int, end: int, toll: FloatArray, value: FloatArray, load: FloatArray
    ) -> None:
        """Layers ``first`` to ``end``: fill in ``value`` and add to ``load``."""
        instance = self.instance
        topics = self._topic_of[first:end]
        due = toll[None, :] * instance.rate[topics][:, None] * self._share[first:end]
        lengths = np.where(self._usable[topics], instance.cost + due, np.inf)
        trees = self.paths.trees(lengths, instance.publisher[topics])
        requests = np.flatnonzero((self._layer_of >= first) & (self._layer_of < end))
        layer = self._layer_of[requests] - first
        targets = instance.request_node[requests]
        distance = trees.distance[layer, targets]
        value[requests] = np.minimum(distance, instance.unmet_penalty)
        served = distance < instance.unmet_penalty
        walker, arcs = self.paths.walk(trees, layer[served], targets[served])
        row = layer[served][walker] + first
        share = self._share[row, arcs if self._fitted else 0]
        carried = instance.rate[self._topic_of[row]] * share
        load += np.bincount(instance.channel[arcs], carried, minlength=len(load))
        if self._fitted:
            self._usage[row, arcs] += 1 - HABIT

    def _fit(self) -> None:
        """Shares from usage: they add up to 1 over the requests of each topic."""
        credited = self._usage + FAINT
        starts = self.instance.first_request[:-1]
        totals = np.add.reduceat(credited, starts, axis=0)
        self._share = credited / totals[self.instance.request_topic]
