"""The best combination of trees already seen: one tree per topic, within capacity.

Every tree that relaxation, repair or local search looked at is remembered. Choosing among them is a
small integer programme (Dantzig and Wolfe's master problem, restricted to the columns at hand), and
often holds the optimum when no single pass did. A tree whose reduced cost exceeds the gap cannot be
part of a better answer and is left out.

Source: M. A. Boschetti, V. Maniezzo (2009) on matheuristics from decompositions.
"""

import numpy as np

from federator.planner.highs import Model, minimise
from federator.planner.instance import FloatArray, Instance, IntArray
from federator.planner.watch import Watch

TREES_PER_TOPIC_MAX = 4_000
COLUMNS_PER_TOPIC_MAX = 120
MASTER_NODES_MAX = 200
CHOSEN = 0.5


class TreePool:
    """Trees seen so far, by topic. The empty tree is always among them."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        nothing = np.empty(0, dtype=np.intp)
        self._trees: list[dict[bytes, tuple[IntArray, float]]] = [
            {nothing.tobytes(): (nothing, float(fan_out * instance.unmet_penalty))}
            for fan_out in instance.fan_out
        ]

    def __len__(self) -> int:
        return sum(map(len, self._trees))

    def add(self, topic: int, arcs: IntArray, cost: float) -> None:
        """Remember a tree, unless the topic has too many."""
        trees = self._trees[topic]
        if len(trees) < TREES_PER_TOPIC_MAX:
            trees.setdefault(arcs.tobytes(), (arcs, cost))

    def combine(
        self,
        *,
        prices: FloatArray,
        topic_value: FloatArray,
        slack: float,
        seed: int,
        watch: Watch,
    ) -> list[tuple[IntArray, float]] | None:
        """The best tree per topic, arcs and cost; None when nothing was found.

        Args:
            prices: Of channels, shape (E,), at which reduced costs are taken.
            topic_value: A lower bound of each topic's reduced cost, shape (K,).
            slack: Best cost less bound: trees above it cannot help.
            seed: Of HiGHS's own choices.
            watch: When to end.
        """
        instance = self.instance
        model = Model()
        rows: list[list[tuple[int, float]]] = [[] for _ in instance.capacity]
        chosen: list[tuple[int, IntArray, float]] = []
        for topic, trees in enumerate(self._trees):
            kept = self._worthwhile(topic, list(trees.values()), prices, topic_value, slack)
            one = []
            for arcs, cost in kept:
                column = model.column(cost, 1.0, whole=True)
                one.append((column, 1.0))
                chosen.append((topic, arcs, cost))
                for channel in np.unique(instance.channel[arcs]).tolist():
                    rows[channel].append((column, float(instance.rate[topic])))
            model.row(one, least=1.0, most=1.0)
        for channel, terms in enumerate(rows):
            if terms:
                model.row(terms, least=-np.inf, most=float(instance.capacity[channel]))
        answer = minimise(model, seed=seed, watch=watch, nodes_max=MASTER_NODES_MAX)
        if answer.values is None:
            return None
        best: list[tuple[IntArray, float] | None] = [None] * instance.topics
        for value, (topic, arcs, cost) in zip(answer.values, chosen, strict=True):
            if value > CHOSEN:
                best[topic] = (arcs, cost)
        return [each for each in best if each is not None]

    def _worthwhile(
        self,
        topic: int,
        trees: list[tuple[IntArray, float]],
        prices: FloatArray,
        topic_value: FloatArray,
        slack: float,
    ) -> list[tuple[IntArray, float]]:
        """Trees of ``topic`` that may be part of a better answer, most promising first."""
        instance = self.instance
        reduced = np.array(
            [cost + instance.rate[topic] * prices[instance.channel[arcs]].sum() for arcs, cost in trees]
        )
        order = np.argsort(reduced, kind="stable")[:COLUMNS_PER_TOPIC_MAX]
        near = reduced - topic_value[topic] <= slack + 1e-6
        kept = [trees[i] for i in order if near[i] or i == 0]
        return kept or [trees[0]]
