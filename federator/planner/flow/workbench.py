"""A routing under construction: topics are taken out, and put back by the best remaining path.

With every other topic in place, the arcs with room for a topic are known, and the shortest path
tree among them is the topic's **best** answer under F1's cost: a tree carries its topic once, so it
fits if each of its arcs does. That makes one call of Dijkstra an exact move, on which repair and
local search are built.
"""

import numpy as np

from federator.planner.flow.instance import TOLERANCE, BoolArray, FloatArray, Instance, IntArray
from federator.planner.flow.routing import Routing
from federator.planner.flow.shortest_paths import ShortestPaths

_NOTHING = np.empty(0, dtype=np.intp)


class Workbench:
    """A routing that is changed topic by topic."""

    def __init__(self, instance: Instance, paths: ShortestPaths | None = None) -> None:
        self.instance = instance
        self.paths = paths or ShortestPaths(instance)
        self.usable: list[BoolArray] = [instance.usable(k) for k in range(instance.topics)]
        self._targets = [
            instance.request_node[instance.requests_of(k)] for k in range(instance.topics)
        ]
        self.clear()

    def total(self) -> float:
        """Cost of the whole routing."""
        return float(self.cost.sum())

    def routing(self) -> Routing:
        """The routing as it stands."""
        return Routing(tuple(np.sort(arcs) for arcs in self.arcs))

    def clear(self) -> None:
        """Take every topic out."""
        instance = self.instance
        self.room = instance.capacity.copy()  # what is left of each channel, shape (E,)
        self.arcs: list[IntArray] = [_NOTHING] * instance.topics  # that carry each topic
        # Paths and penalties of each topic, shape (K,).
        self.cost: FloatArray = instance.fan_out.astype(np.float64) * instance.unmet_penalty

    def remove(self, topic: int) -> tuple[IntArray, float]:
        """Take ``topic`` out; return what ``put`` needs to restore it."""
        before = (self.arcs[topic], float(self.cost[topic]))
        self.room[self.instance.channel[before[0]]] += self.instance.rate[topic]
        self.arcs[topic] = _NOTHING
        self.cost[topic] = len(self._targets[topic]) * self.instance.unmet_penalty
        return before

    def put(self, topic: int, arcs: IntArray, cost: float) -> None:
        """Put ``topic``, which is out, on ``arcs``, whether they have room or not."""
        self.room[self.instance.channel[arcs]] -= self.instance.rate[topic]
        self.arcs[topic] = arcs
        self.cost[topic] = cost

    def open_arcs(self, topic: int) -> BoolArray:
        """Arcs with room for ``topic``, shape (A,)."""
        fits = self.room >= self.instance.rate[topic] - TOLERANCE
        allowed: BoolArray = self.usable[topic] & fits[self.instance.channel]
        return allowed

    def best_tree(
        self, topic: int, allowed: BoolArray, surcharge: FloatArray | None = None
    ) -> tuple[IntArray, float]:
        """The tree for ``topic`` on ``allowed`` arcs: its arcs and its real cost.

        ``surcharge`` is added to the arcs' costs when paths are chosen; both have shape (A,).
        """
        instance = self.instance
        cost = instance.cost if surcharge is None else instance.cost + surcharge
        lengths = np.where(allowed, cost, np.inf)[None, :]
        trees = self.paths.trees(lengths, instance.publisher[topic : topic + 1])
        targets = self._targets[topic]
        distance = trees.distance[0, targets]
        worth = distance < instance.unmet_penalty
        served = targets[worth]
        _, walked = self.paths.walk(trees, np.zeros(len(served), dtype=np.intp), served)
        unmet = len(targets) - len(served)
        paid = float(distance[worth].sum() if surcharge is None else instance.cost[walked].sum())
        return np.unique(walked), paid + unmet * instance.unmet_penalty

    def insert(self, topic: int, surcharge: FloatArray | None = None) -> None:
        """Route ``topic``, which is out, on arcs that have room for it."""
        arcs, cost = self.best_tree(topic, self.open_arcs(topic), surcharge)
        self.put(topic, arcs, cost)

    def respond(self, topic: int) -> bool:
        """Give ``topic`` its best answer to all others; return whether that saved anything."""
        arcs, cost = self.remove(topic)
        self.insert(topic)
        if self.cost[topic] < cost - TOLERANCE:
            return True
        self.remove(topic)
        self.put(topic, arcs, cost)
        return False

    def load(self, routing: Routing, cost: FloatArray) -> None:
        """Begin again from ``routing``, whose topics cost ``cost``."""
        self.clear()
        for topic, arcs in enumerate(routing.arcs):
            self.put(topic, arcs, float(cost[topic]))
