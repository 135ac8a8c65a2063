"""Repair and local search on a workbench. Always feasible: a request without room stays unmet.

Three moves, from cheap to dear: every topic answers all others best (``settle``); a topic pushes
those out of its way who stand in it, and they look for another one (``push``); some topics are
taken out at random and put back in another order (``shuffle``).
"""

import numpy as np

from federator.planner.flow.instance import TOLERANCE, FloatArray, IntArray
from federator.planner.flow.watch import Watch
from federator.planner.flow.workbench import Workbench
from federator.planner.lagrangian.pool import TreePool

ROUNDS_MAX = 20
PUSHED_MAX = 12
"""Topics that one push may move aside."""


class LocalSearch:
    """Moves on ``bench``; what they find goes to ``pool``, if there is one.

    ``ideal`` is the cost of each topic if it were alone, shape (K,): who pays that cannot be
    improved.
    """

    def __init__(
        self,
        bench: Workbench,
        pool: TreePool | None,
        rng: np.random.Generator,
        ideal: FloatArray,
        watch: Watch,
    ) -> None:
        self.bench = bench
        self._pool = pool
        self._rng = rng
        self._ideal = ideal
        self._watch = watch

    def rebuild(self, order: IntArray, surcharge: FloatArray | None) -> None:
        """Route all topics from nothing, in ``order``.

        ``surcharge``, per unit of rate, is added to costs when paths are chosen, shape (A,).
        """
        bench = self.bench
        bench.clear()
        for topic in order.tolist():
            if self._watch.over():
                return
            toll = None if surcharge is None else surcharge * bench.instance.rate[topic]
            bench.insert(topic, toll)
            self._note(topic)

    def settle(self) -> None:
        """Let topics answer each other until nobody gains."""
        for _ in range(ROUNDS_MAX):
            gained = False
            for topic in self._unhappy():
                if self._watch.over():
                    return
                if self.bench.respond(topic):
                    self._note(topic)
                    gained = True
            if not gained:
                return

    def push_all(self, *, tries: int) -> bool:
        """Let up to ``tries`` unhappy topics push; whether anything was gained."""
        gained = False
        for topic in self._unhappy()[:tries]:
            if self._watch.over():
                return gained
            gained |= self.push(topic)
        return gained

    def push(self, topic: int) -> bool:
        """Route ``topic`` as if alone, and those in its way anew; kept when that saves."""
        bench, instance = self.bench, self.bench.instance
        before = bench.total()
        undo = {topic: bench.remove(topic)}
        arcs, cost = bench.best_tree(topic, bench.usable[topic])
        bench.put(topic, arcs, cost)
        self._note(topic)
        for channel in np.flatnonzero(bench.room < -TOLERANCE).tolist():
            others = [
                k
                for k in range(instance.topics)
                if k not in undo and (instance.channel[bench.arcs[k]] == channel).any()
            ]
            self._rng.shuffle(others)
            for other in others:
                if bench.room[channel] >= -TOLERANCE:
                    break
                undo[other] = bench.remove(other)
        if (bench.room >= -TOLERANCE).all() and len(undo) <= PUSHED_MAX:
            moved = [other for other in undo if other != topic]
            self._rng.shuffle(moved)
            for other in moved:
                bench.insert(other)
                self._note(other)
            if bench.total() < before - TOLERANCE:
                return True
        self._restore(undo)
        return False

    def shuffle(self, topics: IntArray) -> bool:
        """Take ``topics`` out and put them back in this order; kept when that saves."""
        bench = self.bench
        before = bench.total()
        undo = {topic: bench.remove(topic) for topic in topics.tolist()}
        for topic in topics.tolist():
            bench.insert(topic)
            self._note(topic)
        if bench.total() < before - TOLERANCE:
            return True
        self._restore(undo)
        return False

    def remember_all(self) -> None:
        """Put every topic's tree into the pool."""
        for topic in range(self.bench.instance.topics):
            self._note(topic)

    def _restore(self, undo: dict[int, tuple[IntArray, float]]) -> None:
        for topic in undo:
            self.bench.remove(topic)
        for topic, (arcs, cost) in undo.items():
            self.bench.put(topic, arcs, cost)

    def _unhappy(self) -> list[int]:
        """Topics that pay more than if they were alone, in random order."""
        pays = np.flatnonzero(self.bench.cost > self._ideal + TOLERANCE)
        return [int(topic) for topic in self._rng.permutation(pays)]

    def _note(self, topic: int) -> None:
        if self._pool is not None:
            self._pool.add(topic, self.bench.arcs[topic], float(self.bench.cost[topic]))
