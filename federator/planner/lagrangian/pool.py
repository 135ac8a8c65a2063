"""The best combination of trees already found: one tree per topic, within capacity.

Every tree that relaxation, repair or local search produced is remembered. Choosing among them is a
small integer programme (Dantzig and Wolfe's master problem, restricted to the columns at hand), and
often finds the optimum when no single pass did. A tree with a reduced cost above the gap cannot be
part of a better answer and is left out.

Source: M. A. Boschetti, V. Maniezzo (2009) on matheuristics from decompositions.
"""

from dataclasses import dataclass

import numpy as np

from federator.planner.flow.exact import CHOSEN
from federator.planner.flow.highs import Model, minimise
from federator.planner.flow.instance import FloatArray, Instance, IntArray
from federator.planner.flow.shortest_paths import ShortestPaths
from federator.planner.flow.watch import Watch

TREES_PER_TOPIC_MAX = 4_000
COLUMNS_PER_TOPIC_MAX = 120
MASTER_NODES_MAX = 200

PARTS = (1.0, 0.5, 0.0)
"""Between each request paying the whole toll (1) and an equal share of it (0)."""

Column = tuple[int, IntArray, float]
"""A topic, the arcs of one of its trees, and its cost."""


@dataclass(frozen=True, slots=True, eq=False)
class Priced:
    """The linear relaxation of the choice among all trees found."""

    value: float  # of the relaxation; bounds only choices among these trees
    prices: FloatArray  # of channels, shape (E,)
    topic_prices: FloatArray  # least reduced cost of each topic's trees, shape (K,)


class TreePool:
    """Trees found so far, by topic. The empty tree is always among them."""

    def __init__(self, instance: Instance, paths: ShortestPaths) -> None:
        self.instance = instance
        self._paths = paths
        usable = np.stack([instance.usable(k) for k in range(instance.topics)])
        self._cost = np.where(usable, instance.cost, np.inf)
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

    def find(self, toll: FloatArray, rng: np.random.Generator) -> None:
        """Add trees worth remembering at a ``toll`` per unit of rate, shape (A,), for all topics.

        A topic pays a toll once per arc, however many requests use the arc. First we pretend that
        each request pays a fixed part of it and takes the shortest path tree; then subscribers are
        served one after the other (``_by_turns``).
        """
        instance = self.instance
        for part in PARTS:
            weight = part + (1 - part) / instance.fan_out
            self._remember(self._cost + toll[None, :] * (instance.rate * weight)[:, None])
        self._by_turns(toll, rng)

    def _by_turns(self, toll: FloatArray, rng: np.random.Generator) -> None:
        """Find one tree per topic, its subscribers served in random order.

        Later subscribers do not pay for arcs in use, and tend to follow them; the shortest path
        tree of the arcs so chosen is kept.
        """
        instance = self.instance
        due = toll[None, :] * instance.rate[:, None]
        used = np.zeros((instance.topics, instance.arcs), dtype=bool)
        turn = rng.random(instance.requests)
        order = np.lexsort((turn, instance.request_topic))
        place = np.arange(instance.requests) - instance.first_request[instance.request_topic]
        for now in range(int(instance.fan_out.max())):
            requests = order[place == now]
            topics = instance.request_topic[requests]
            lengths = (self._cost + np.where(used, 0.0, due))[topics]
            trees = self._paths.trees(lengths, instance.publisher[topics])
            layers = np.arange(len(topics))
            walker, arcs = self._paths.walk(trees, layers, instance.request_node[requests])
            used[topics[walker], arcs] = True
        self._remember(np.where(used, self._cost, np.inf))

    def _remember(self, lengths: FloatArray) -> None:
        instance = self.instance
        trees = self._paths.trees(lengths, instance.publisher)
        reached = np.isfinite(trees.distance[instance.request_topic, instance.request_node])
        layer = instance.request_topic[reached]
        walker, arcs = self._paths.walk(trees, layer, instance.request_node[reached])
        topic_of = layer[walker]
        paid = np.bincount(topic_of, instance.cost[arcs], minlength=instance.topics)
        unmet = np.bincount(instance.request_topic[~reached], minlength=instance.topics)
        price = paid + unmet * instance.unmet_penalty
        for topic in range(instance.topics):
            self.add(topic, np.unique(arcs[topic_of == topic]), float(price[topic]))

    def price(self, *, seed: int, watch: Watch) -> Priced | None:
        """Solve the linear relaxation of the choice; None when time is over."""
        columns = [
            (topic, *tree) for topic, trees in enumerate(self._trees) for tree in trees.values()
        ]
        model, used = self._model(columns, whole=False)
        answer = minimise(model, seed=seed, watch=watch)
        if answer.values is None or not answer.optimal:
            return None
        duals, topics = answer.row_duals, self.instance.topics
        prices = np.zeros(len(self.instance.capacity))
        prices[used] = np.maximum(0.0, -duals[topics:])
        return Priced(answer.lower_bound, prices, duals[:topics])

    def combine(
        self, priced: Priced, *, best_cost: float, seed: int, watch: Watch
    ) -> list[tuple[IntArray, float]] | None:
        """The best tree per topic, arcs and cost; None without a result.

        ``priced`` is the linear relaxation of the same choice, ``best_cost`` the best so far.
        """
        slack = best_cost - priced.value
        columns = [
            (topic, arcs, cost)
            for topic, trees in enumerate(self._trees)
            for arcs, cost in self._worthwhile(topic, list(trees.values()), priced, slack)
        ]
        model, _ = self._model(columns, whole=True)
        answer = minimise(model, seed=seed, watch=watch, nodes_max=MASTER_NODES_MAX)
        if answer.values is None:
            return None
        best: list[tuple[IntArray, float] | None] = [None] * self.instance.topics
        for value, (topic, arcs, cost) in zip(answer.values, columns, strict=True):
            if value > CHOSEN:
                best[topic] = (arcs, cost)
        return [tree for tree in best if tree is not None]

    def _model(self, columns: list[Column], *, whole: bool) -> tuple[Model, list[int]]:
        """One row per topic, then one per channel that some tree uses; and these channels."""
        instance = self.instance
        model = Model()
        one: list[list[tuple[int, float]]] = [[] for _ in range(instance.topics)]
        rows: list[list[tuple[int, float]]] = [[] for _ in instance.capacity]
        for topic, arcs, cost in columns:
            column = model.column(cost, 1.0 if whole else np.inf, whole=whole)
            one[topic].append((column, 1.0))
            rate = float(instance.rate[topic])
            for channel in instance.channel[arcs].tolist():
                rows[channel].append((column, rate))
        for terms in one:
            model.row(terms, least=1.0, most=1.0)
        used = [channel for channel, terms in enumerate(rows) if terms]
        for channel in used:
            model.row(rows[channel], least=-np.inf, most=float(instance.capacity[channel]))
        return model, used

    def _worthwhile(
        self, topic: int, trees: list[tuple[IntArray, float]], priced: Priced, slack: float
    ) -> list[tuple[IntArray, float]]:
        """Trees of ``topic`` that may be part of a better answer, most promising first."""
        rate, toll = self.instance.rate[topic], priced.prices[self.instance.channel]
        reduced = np.array([cost + rate * toll[arcs].sum() for arcs, cost in trees])
        order = np.argsort(reduced, kind="stable")[:COLUMNS_PER_TOPIC_MAX]
        near = reduced - priced.topic_prices[topic] <= slack + 1e-6
        return [trees[i] for i in order if near[i]] or [trees[order[0]]]
