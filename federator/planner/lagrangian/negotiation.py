"""Negotiated congestion: everybody may overload a link, but it gets dearer until enough give way.

Where room is scarce, putting topics in one after the other leaves the last ones out. Here each
topic in turn is taken out and put back where it is cheapest, overloads included, which cost more
from round to round: a **present** charge for what would now be too much, and a **lasting** one for
what has been too much before. Topics with an alternative leave first. From the second round on only
those move that share an overloaded channel.

Source: L. McMurchie, C. Ebeling, "PathFinder: a negotiation-based performance-driven router for
FPGAs" (1995).
"""

import numpy as np

from federator.planner.flow.instance import TOLERANCE, FloatArray
from federator.planner.flow.watch import Watch
from federator.planner.flow.workbench import Workbench

ROUNDS_MAX = 40
PRESENT_FIRST = 0.5
PRESENT_GROWTH = 1.5
PRESENT_MAX = 1e3
LASTING = 0.4
"""Lasting charge per round, in mean arc costs, on a channel overloaded by all of its capacity."""


class Negotiation:
    """Moves topics on ``bench`` until every channel fits, or time is over.

    Topics may be anywhere on it, overloads included; ``rng`` orders them.
    """

    def __init__(self, bench: Workbench, rng: np.random.Generator, watch: Watch) -> None:
        self._bench = bench
        self._rng = rng
        self._watch = watch
        self._unit = float(bench.instance.cost.mean()) or 1.0
        self._lasting = np.zeros(len(bench.instance.capacity))

    def run(self) -> bool:
        """Whether everything fits in the end."""
        bench, instance = self._bench, self._bench.instance
        present = PRESENT_FIRST
        for _ in range(ROUNDS_MAX):
            over = bench.room < -TOLERANCE
            if not over.any():
                return True
            excess = np.where(over, -bench.room, 0.0) / instance.capacity
            self._lasting += LASTING * np.minimum(1.0, excess) + LASTING * over / 4
            crowded = [
                k for k in range(instance.topics) if over[instance.channel[bench.arcs[k]]].any()
            ]
            for topic in self._rng.permutation(crowded).tolist():
                if self._watch.over():
                    return False
                self._move(int(topic), present)
            present = min(present * PRESENT_GROWTH, PRESENT_MAX)
        return not (bench.room < -TOLERANCE).any()

    def _move(self, topic: int, present: float) -> None:
        """Put ``topic`` where it is cheapest now; not at all where it already is fits."""
        bench, instance = self._bench, self._bench.instance
        if (bench.room[instance.channel[bench.arcs[topic]]] >= -TOLERANCE).all():
            return
        bench.remove(topic)
        arcs, cost = bench.best_tree(topic, bench.usable[topic], self._charge(topic, present))
        bench.put(topic, arcs, cost)

    def _charge(self, topic: int, present: float) -> FloatArray:
        """What each arc costs ``topic`` beyond its cost, shape (A,)."""
        rate = float(self._bench.instance.rate[topic])
        lacking = np.clip((rate - self._bench.room) / rate, 0.0, 1.0)
        lacking[lacking < TOLERANCE] = 0.0
        charge = self._unit * (self._lasting + present * lacking * (1.0 + self._lasting))
        return charge[self._bench.instance.channel]


def evict(bench: Workbench, rng: np.random.Generator) -> list[int]:
    """Take topics out until every channel fits; the topics, which are to be inserted again."""
    instance = bench.instance
    out: list[int] = []
    for topic in rng.permutation(instance.topics).tolist():
        if (bench.room[instance.channel[bench.arcs[topic]]] < -TOLERANCE).any():
            bench.remove(topic)
            out.append(topic)
    return out
