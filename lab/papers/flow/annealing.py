"""Simulated annealing as the paper adapted it: a path per request, a fixed price per overload.

The state gives every request one of a few paths, or none. A move gives one request another. Worse
states are taken with probability exp(-difference / temperature), and the temperature falls. As in
the paper a channel that carries too much costs a fixed amount, and that a topic has several
subscribers plays no part in the choice of moves. It is a reference, and a weak one.

Sources: Manzoni 2022, 5; Wei et al. (2014), its [29].
"""

import math
import random
from collections import Counter

import numpy as np

from federator.planner.flow.instance import TOLERANCE, Instance, IntArray
from federator.planner.flow.outcome import Outcome, outcome
from federator.planner.flow.routing import Routing, empty
from federator.planner.flow.shortest_paths import ShortestPaths
from federator.planner.flow.watch import UNWATCHED, Progress, Watch

LOOK_EVERY = 500  # moves between two looks at the watch


MOVES = 30_000
PATHS = 8  # drawn for each request
COLDEST = 0.005  # last temperature, in mean costs of a request; the first is 1


def solve(instance: Instance, *, seed: int = 0, watch: Watch = UNWATCHED) -> Outcome:
    return _Annealing(instance, random.Random(seed), watch).run(seed)


class _Annealing:
    """The state: a path number per request; who carries what, kept up to date."""

    def __init__(self, instance: Instance, rng: random.Random, watch: Watch) -> None:
        self.instance, self.rng, self.watch = instance, rng, watch
        self.graph = ShortestPaths(instance)
        self.used: list[Counter[int]] = [Counter() for _ in range(instance.topics)]
        self.load = [0.0] * len(instance.capacity)
        self.cost = 0.0
        self.overloads = 0

    def run(self, seed: int) -> Outcome:
        instance, rng = self.instance, self.rng
        choices = self._draw_paths(seed)
        state = [0] * instance.requests
        for request in range(instance.requests):
            self._change(request, choices[request][0], 1)
        typical = sum(p[1] for c in choices for p in c[:1]) / instance.requests
        fine = typical * 10
        best, best_cost = None, math.inf
        done = 0
        for done in range(MOVES):
            if self.overloads == 0 and self.cost < best_cost - TOLERANCE:
                best, best_cost = state.copy(), self.cost
            if done % LOOK_EVERY == 0:
                self.watch.report(Progress(done / MOVES, best_cost))
                if self.watch.over():
                    break
            cooling = COLDEST ** (done / MOVES)
            request = rng.randrange(instance.requests)
            chosen = rng.randrange(len(choices[request]))
            before = self.cost + fine * self.overloads
            self._change(request, choices[request][state[request]], -1)
            self._change(request, choices[request][chosen], 1)
            worse = self.cost + fine * self.overloads - before
            if worse <= 0 or rng.random() < math.exp(-worse / (typical * cooling)):
                state[request] = chosen
            else:
                self._change(request, choices[request][chosen], -1)
                self._change(request, choices[request][state[request]], 1)
        routing = empty(instance) if best is None else self._trees(best, choices)
        stopped = "found nothing that fits" if best is None else "done"
        return outcome(instance, routing, method="annealing", stopped=stopped, iterations=done + 1)

    def _draw_paths(self, seed: int) -> list[list[tuple[IntArray, float]]]:
        """Draw some different paths for each request, the shortest first, and none at all last."""
        instance = self.instance
        rng = np.random.default_rng(seed)
        found: list[dict[bytes, tuple[IntArray, float]]] = [{} for _ in range(instance.requests)]
        usable = np.stack([instance.usable(k) for k in range(instance.topics)])
        for turn in range(PATHS):
            noise = np.ones(usable.shape) if turn == 0 else rng.uniform(0.3, 3.0, usable.shape)
            lengths = np.where(usable, instance.cost * noise + TOLERANCE, np.inf)
            trees = self.graph.trees(lengths, instance.publisher)
            walker, arcs = self.graph.walk(trees, instance.request_topic, instance.request_node)
            for request in range(instance.requests):
                path = np.sort(arcs[walker == request])
                if len(path):
                    price = float(instance.cost[path].sum())
                    found[request].setdefault(path.tobytes(), (path, price))
        nothing = (np.empty(0, dtype=np.intp), instance.unmet_penalty)
        return [[*paths.values(), nothing] for paths in found]

    def _change(self, request: int, path: tuple[IntArray, float], by: int) -> None:
        instance = self.instance
        topic = int(instance.request_topic[request])
        used, rate = self.used[topic], float(instance.rate[topic])
        self.cost += by * path[1]
        for arc in path[0].tolist():
            used[arc] += by
            if used[arc] != (1 if by > 0 else 0):
                continue
            channel = int(instance.channel[arc])
            limit = float(instance.capacity[channel]) + TOLERANCE
            was_over = self.load[channel] > limit
            self.load[channel] += by * rate
            self.overloads += (self.load[channel] > limit) - was_over

    def _trees(self, state: list[int], choices: list[list[tuple[IntArray, float]]]) -> Routing:
        """The shortest path tree of each topic on the arcs that its paths use."""
        instance = self.instance
        used = np.zeros((instance.topics, instance.arcs), dtype=bool)
        served = np.zeros(instance.requests, dtype=bool)
        for request, chosen in enumerate(state):
            path = choices[request][chosen][0]
            used[instance.request_topic[request], path] = True
            served[request] = len(path) > 0
        trees = self.graph.trees(np.where(used, instance.cost, np.inf), instance.publisher)
        topic_of = instance.request_topic[served]
        walker, arcs = self.graph.walk(trees, topic_of, instance.request_node[served])
        owner = topic_of[walker]
        return Routing(tuple(np.unique(arcs[owner == k]) for k in range(instance.topics)))
