"""Repair and local search on a workbench. Always feasible: a request without room stays unmet.

Three moves, from cheap to dear: every topic takes its best answer to all others (``settle``); a
topic pushes others out of its way, which are then routed anew (``push``); some topics are taken out
at random and put back in another order (``shuffle``). Where that leaves requests unmet, topics may
overload links for a while (``Negotiation``).
"""

from dataclasses import dataclass

import numpy as np

from federator.planner.flow.instance import TOLERANCE, FloatArray, IntArray
from federator.planner.flow.watch import Watch
from federator.planner.flow.workbench import Workbench
from federator.planner.lagrangian.pool import TreePool

SETTLING_ROUNDS_MAX = 20
PUSHED_MAX = 12
"""Topics that one push may displace."""
NEGOTIATION_ROUNDS_MAX = 40
PRESENT_FIRST = 0.5
PRESENT_GROWTH = 1.5
PRESENT_MAX = 1e3
LASTING = 0.4
"""Lasting charge per round, in mean arc costs, on a channel overloaded by all of its capacity."""


@dataclass(slots=True)
class LocalSearch:
    """Moves on a bench; trees found go to the pool, if there is one."""

    bench: Workbench
    pool: TreePool | None
    rng: np.random.Generator
    # the cost of each topic alone, shape (K,): at this cost it cannot be improved
    ideal: FloatArray
    watch: Watch

    def rebuild(self, order: IntArray, surcharge: FloatArray | None) -> None:
        """Route all topics from scratch, in ``order``.

        ``surcharge``, per unit of rate, is added to costs when paths are chosen, shape (A,).
        """
        bench = self.bench
        bench.clear()
        for topic in order.tolist():
            if self.watch.over():
                return
            toll = None if surcharge is None else surcharge * bench.instance.rate[topic]
            bench.insert(topic, toll)
            self._note(topic)

    def settle(self) -> None:
        """Let topics answer each other until none gains."""
        for _ in range(SETTLING_ROUNDS_MAX):
            gained = False
            for topic in self._unhappy():
                if self.watch.over():
                    return
                if self.bench.respond(topic):
                    self._note(topic)
                    gained = True
            if not gained:
                return

    def push_all(self, *, tries: int) -> bool:
        """Let up to ``tries`` unhappy topics push; return whether anything was gained."""
        gained = False
        for topic in self._unhappy()[:tries]:
            if self.watch.over():
                return gained
            gained |= self.push(topic)
        return gained

    def push(self, topic: int) -> bool:
        """Route ``topic`` as if alone, and the topics in its way anew; keep that if it saves."""
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
            self.rng.shuffle(others)
            for other in others:
                if bench.room[channel] >= -TOLERANCE:
                    break
                undo[other] = bench.remove(other)
        if (bench.room >= -TOLERANCE).all() and len(undo) <= PUSHED_MAX:
            moved = [other for other in undo if other != topic]
            self.rng.shuffle(moved)
            for other in moved:
                bench.insert(other)
                self._note(other)
            if bench.total() < before - TOLERANCE:
                return True
        self._restore(undo)
        return False

    def shuffle(self, topics: IntArray) -> bool:
        """Take ``topics`` out and put them back in this order; keep that if it saves."""
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
        pays = np.flatnonzero(self.bench.cost > self.ideal + TOLERANCE)
        return [int(topic) for topic in self.rng.permutation(pays)]

    def _note(self, topic: int) -> None:
        if self.pool is not None:
            self.pool.add(topic, self.bench.arcs[topic], float(self.bench.cost[topic]))


class Negotiation:
    """Negotiated congestion on ``bench``, until every channel fits, or time is over.

    Topics may be routed anywhere on it, overloads included; ``rng`` orders them. Where room is
    scarce, inserting them one by one leaves the last ones unmet. Here each in turn is taken out and
    put back where it is cheapest, overloads included, which cost more from round to round: a
    **present** charge for the overload now, and a **lasting** one for earlier overloads. Topics
    with an alternative leave first. From the second round on only topics on an overloaded channel
    move.

    Source: L. McMurchie, C. Ebeling, "PathFinder: a negotiation-based performance-driven router for
    FPGAs" (1995).
    """

    def __init__(self, bench: Workbench, rng: np.random.Generator, watch: Watch) -> None:
        self._bench = bench
        self._rng = rng
        self._watch = watch
        self._unit = float(bench.instance.cost.mean()) or 1.0
        self._lasting = np.zeros(len(bench.instance.capacity))

    def run(self) -> None:
        """Move topics, round after round."""
        bench, instance = self._bench, self._bench.instance
        present = PRESENT_FIRST
        for _ in range(NEGOTIATION_ROUNDS_MAX):
            over = bench.room < -TOLERANCE
            if not over.any():
                return
            excess = np.where(over, -bench.room, 0.0) / np.maximum(instance.capacity, TOLERANCE)
            self._lasting += LASTING * np.minimum(1.0, excess) + LASTING * over / 4
            crowded = [
                k for k in range(instance.topics) if over[instance.channel[bench.arcs[k]]].any()
            ]
            for topic in self._rng.permutation(crowded).tolist():
                if self._watch.over():
                    return
                self._move(int(topic), present)
            present = min(present * PRESENT_GROWTH, PRESENT_MAX)

    def _move(self, topic: int, present: float) -> None:
        """Put ``topic`` where it is cheapest now, unless it fits where it is."""
        bench, instance = self._bench, self._bench.instance
        if (bench.room[instance.channel[bench.arcs[topic]]] >= -TOLERANCE).all():
            return
        bench.remove(topic)
        arcs, cost = bench.best_tree(topic, bench.usable[topic], self._charge(topic, present))
        bench.put(topic, arcs, cost)

    def _charge(self, topic: int, present: float) -> FloatArray:
        """The charge of each arc for ``topic`` beyond its cost, shape (A,)."""
        rate = float(self._bench.instance.rate[topic])
        lacking = np.clip((rate - self._bench.room) / rate, 0.0, 1.0)
        lacking[lacking < TOLERANCE] = 0.0
        charge = self._unit * (self._lasting + present * lacking * (1.0 + self._lasting))
        return charge[self._bench.instance.channel]


def evict(bench: Workbench, rng: np.random.Generator) -> list[int]:
    """Take topics out until every channel fits; return them, to be inserted again."""
    instance = bench.instance
    out: list[int] = []
    for topic in rng.permutation(instance.topics).tolist():
        if (bench.room[instance.channel[bench.arcs[topic]]] < -TOLERANCE).any():
            bench.remove(topic)
            out.append(topic)
    return out
