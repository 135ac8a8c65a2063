"""The paper's split of F1 into one small programme per node, (8)-(19).

Sinks first: each chooses by which of its incoming arcs each topic shall come, at least cost and
within its links' capacities, or not at all. That makes demands of the brokers above, which choose
in turn, "provided that routing decisions can be enforced downpath", until publishers are reached. A
broker that finds no way for a demand refuses it, and whoever asked has to choose again without that
arc; each refusal bars one arc for one topic for good, so this ends.

What it can promise: the answer fits, and everybody decides from what is next to them. What it
cannot: a node pays for its own last arc and sees nothing of the way beyond, so the sum of local
optima is no optimum and there is no bound.

Source: Manzoni 2022, (8)-(19); docs/planner.md 3.
"""

from collections import deque

import numpy as np

from federator.planner.flow.highs import Model, minimise
from federator.planner.flow.instance import TOLERANCE, Instance
from federator.planner.flow.outcome import Outcome, outcome
from federator.planner.flow.routing import from_arcs, prune
from federator.planner.flow.watch import UNWATCHED, Progress, Watch

CHOSEN = 0.5
REFUSAL = 1e6  # price of a demand that a node cannot meet, far above any arc's


def solve(instance: Instance, *, seed: int = 0, watch: Watch = UNWATCHED) -> Outcome:
    """Let every node solve its own programme, sinks first."""
    split = _Split(instance, seed, watch)
    stopped = split.run()
    routing = prune(instance, from_arcs([list(feeds.values()) for feeds in split.feed]))
    return outcome(instance, routing, method="split", stopped=stopped, iterations=split.programmes)


class _Split:
    """Who is fed by which arc so far, and who still has to choose."""

    def __init__(self, instance: Instance, seed: int, watch: Watch) -> None:
        self.instance, self.seed, self.watch = instance, seed, watch
        self.room = instance.capacity.copy()
        self.usable = [instance.usable(k) for k in range(instance.topics)]
        self.feed: list[dict[int, int]] = [{} for _ in range(instance.topics)]
        self.barred: set[tuple[int, int]] = set()
        self.entering: list[list[int]] = [[] for _ in range(instance.nodes)]
        for arc in range(instance.arcs):
            self.entering[instance.head[arc]].append(arc)
        self.waiting: dict[int, set[int]] = {}
        self.queue: deque[int] = deque()
        self.programmes = 0

    def run(self) -> str:
        """Let nodes choose until nothing changes; the reason why it ended."""
        for topic, node in zip(
            self.instance.request_topic, self.instance.request_node, strict=True
        ):
            self._ask(int(node), int(topic))
        while self.queue:
            if self.watch.over():
                return "stopped"
            self._decide(self.queue.popleft())
            self.programmes += 1
            self.watch.report(Progress(1 / (1 + len(self.queue))))
        return "done"

    def _ask(self, node: int, topic: int) -> None:
        if node == self.instance.publisher[topic] or node in self.feed[topic]:
            return
        if node not in self.waiting:
            self.waiting[node] = set()
            self.queue.append(node)
        self.waiting[node].add(topic)

    def _decide(self, node: int) -> None:
        """Solve (8)-(13) or (14)-(19) at ``node`` and carry it out."""
        topics = sorted(self.waiting.pop(node))
        options = {topic: self._options(node, topic) for topic in topics}
        model = Model()
        columns: dict[tuple[int, int], int] = {}
        rows: dict[int, list[tuple[int, float]]] = {}
        for topic, arcs in options.items():
            one = [(model.column(REFUSAL, 1.0, whole=True), 1.0)]
            demand = max(1, self._demand(node, topic))
            for arc in arcs:
                column = model.column(float(self.instance.cost[arc]) * demand, 1.0, whole=True)
                columns[topic, arc] = column
                one.append((column, 1.0))
                channel = int(self.instance.channel[arc])
                rows.setdefault(channel, []).append((column, float(self.instance.rate[topic])))
            model.row(one, least=1.0, most=1.0)
        for channel, terms in rows.items():
            model.row(terms, least=-np.inf, most=float(self.room[channel]))
        values = minimise(model, seed=self.seed, watch=self.watch).values
        fed = set()
        for (topic, arc), column in columns.items():
            if values is not None and values[column] > CHOSEN:
                self._connect(node, topic, arc)
                fed.add(topic)
        for topic in topics:
            if topic not in fed:
                self._refuse(node, topic)

    def _options(self, node: int, topic: int) -> list[int]:
        """Arcs that may feed ``node``: with room, not barred, not from those it feeds itself."""
        instance = self.instance
        return [
            arc
            for arc in self.entering[node]
            if self.usable[topic][arc]
            and (topic, arc) not in self.barred
            and self.room[instance.channel[arc]] >= instance.rate[topic] - TOLERANCE
            and not self._is_fed_by(int(instance.tail[arc]), node, topic)
        ]

    def _is_fed_by(self, node: int, above: int, topic: int) -> bool:
        while node != above:
            if node not in self.feed[topic]:
                return False
            node = int(self.instance.tail[self.feed[topic][node]])
        return True

    def _demand(self, node: int, topic: int) -> int:
        wanted = self.instance.request_node[self.instance.requests_of(topic)]
        return sum(self._is_fed_by(int(each), node, topic) for each in wanted)

    def _connect(self, node: int, topic: int, arc: int) -> None:
        self.feed[topic][node] = arc
        self.room[self.instance.channel[arc]] -= self.instance.rate[topic]
        self._ask(int(self.instance.tail[arc]), topic)

    def _refuse(self, node: int, topic: int) -> None:
        """Nobody can feed ``node``: those it was to feed choose again."""
        for below, arc in list(self.feed[topic].items()):
            if self.instance.tail[arc] == node:
                del self.feed[topic][below]
                self.room[self.instance.channel[arc]] += self.instance.rate[topic]
                self.barred.add((topic, arc))
                self._ask(below, topic)
