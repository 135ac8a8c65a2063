"""A bound from tolls that each request pays by itself, and links that carry whole topics only.

Let request r pay a toll of its own on each link, on top of the cost of its way. A topic that uses a
link then pays at most what its requests pay there together, its **place**; and a link can sell
places only to topics that fit on it side by side, whole topics, not parts. So

    bound = sum over requests of min(penalty, shortest path under cost + toll)
            - sum over links of the dearest set of places that fit

is valid for all tolls. It is stronger than one price per unit of rate (``relaxation``) for two
reasons: requests that share an arc are charged as they need, not equally; and a link with room for
9 of 10 units must turn a topic away as a whole, which a price per unit does not see.

Tolls follow a subgradient, averaged over the last steps (use of a link by a request, less the
link's sale to its topic); steps shrink harmonically, and with the length of paths, along which
tolls add up. Paths stay in ``Corridors``.

Source: M. Guignard, S. Kim, "Lagrangean decomposition" (1987): a copy of the routing for the links.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import dijkstra

from federator.planner.flow.instance import BoolArray, FloatArray, Instance, IntArray
from federator.planner.flow.shortest_paths import CHUNK_NODES, ShortestPaths, walk_back
from federator.planner.flow.watch import UNWATCHED, Watch
from federator.planner.lagrangian import covers

STEP_MAX = 0.3
STEP_BY_HOPS = 2.4
"""First step, in mean costs of an arc: this over the mean path length in arcs, or ``STEP_MAX``."""
HALF_LIFE = 60
"""Rounds after which steps are half as long."""
HABIT = 0.9
"""The share of the direction kept from round to round."""
SLACK_UNITS = 4.0
"""Slack in mean costs of an arc, and ..."""
SLACK_SHARE = 0.01
"""... as a share of the shortest way."""


class RequestTolls:
    """The tolls, and the bound that they prove.

    Tolls belong to P pairs (request, channel), where the channel is contested: the topics whose
    corridors include it do not fit together.
    """

    def __init__(self, instance: Instance, paths: ShortestPaths, watch: Watch = UNWATCHED) -> None:
        self.instance = instance
        self.corridors = Corridors(instance, paths, watch)
        self.bound = -math.inf
        self.rounds = 0
        self._hops = 1.0
        if self.corridors.complete:
            self._pair()

    def _pair(self) -> None:
        """Find pairs (request, channel), and the places (channel, topic) that sum them."""
        instance, corridors = self.instance, self.corridors
        channels = len(instance.capacity)
        channel = instance.channel[corridors.arc]
        topic = instance.request_topic[corridors.request]
        met = np.unique(channel * np.int64(instance.topics) + topic)
        rate = instance.rate[met % instance.topics]
        asked = np.bincount(met // instance.topics, rate, minlength=channels)
        self._contested: BoolArray = (asked > instance.capacity)[channel]
        there = np.flatnonzero(self._contested)
        key = corridors.request[there] * np.int64(channels) + channel[there]
        pairs, which = np.unique(key, return_inverse=True)
        self._pair_of_arc = np.full(len(channel), -1, dtype=np.intp)
        self._pair_of_arc[there] = which
        pair_topic = instance.request_topic[pairs // channels]
        place_key = (pairs % channels) * np.int64(instance.topics) + pair_topic
        places, self._place = np.unique(place_key, return_inverse=True)
        self._link, self._topic = places // instance.topics, places % instance.topics
        self._cost = instance.cost[corridors.arc]
        self.tolls: FloatArray = np.zeros(len(pairs))
        self._direction: FloatArray = np.zeros(len(pairs))

    def improve(self, watch: Watch) -> Iterator[float]:
        """The best bound so far, round after round, until time is over."""
        while self.corridors.complete and not watch.over():
            self._round()
            yield self.bound

    def _round(self) -> None:
        lengths = self._cost.copy()
        priced = self._pair_of_arc[self._contested]
        lengths[self._contested] += self.tolls[priced]
        walks = self.corridors.walk(lengths)
        pairs: IntArray = self._pair_of_arc[walks.step]
        uses = np.zeros(len(self.tolls), dtype=bool)
        uses[pairs[pairs >= 0]] = True
        if not self.rounds:
            self._hops = max(1.0, len(walks.step) / self.instance.requests)
        value, turned_away = self._sell(uses)
        self.bound = max(self.bound, float(walks.value.sum()) - value)
        slope = uses.astype(np.float64) - ~turned_away[self._place]
        slope[(self.tolls <= 0) & (slope < 0)] = 0.0
        self._direction = HABIT * self._direction + (1 - HABIT) * slope
        first = min(STEP_MAX, STEP_BY_HOPS / self._hops) * float(self.instance.cost.mean())
        step = first / (1 + self.rounds / HALF_LIFE)
        self.tolls = np.maximum(0.0, self.tolls + step * self._direction)
        self.rounds += 1

    def _sell(self, uses: BoolArray) -> tuple[float, BoolArray]:
        """The most that links can earn, and whether each place is turned away."""
        places = len(self._link)
        price = np.bincount(self._place, self.tolls, minlength=places).astype(np.float64)
        in_use = np.bincount(self._place, uses, minlength=places) > 0
        active = np.flatnonzero((price > 0) | in_use)
        cover = covers.cheapest(
            self._link[active],
            self.instance.rate[self._topic[active]],
            price[active],
            self.instance.capacity,
        )
        turned_away = np.zeros(places, dtype=bool)
        turned_away[active] = cover.leaves
        return float(price.sum()) - cover.loss, turned_away


@dataclass(frozen=True, slots=True, eq=False)
class Walks:
    """The cheapest way of each request at some tolls."""

    value: FloatArray  # no way is cheaper, penalty included, shape (R,)
    walker: IntArray  # request of each step of the ways inside corridors that cost ``value``
    step: IntArray  # place of its arc in ``Corridors.arc``


class Corridors:
    """Where paths can sensibly run: all corridors, as one graph of M nodes and S arcs.

    The corridor of a request has all arcs that lie on a way at most ``slack`` dearer than the
    shortest. Whatever is added to the arcs, a way that leaves the corridor costs more than the
    shortest and the slack; so the smaller of that and the shortest way inside bounds the shortest
    way anywhere, and problems of 10,000 nodes become problems of some hundred.

    Corridors are found with reduced lengths ``cost + d(tail) - d(head)``, d being the distance from
    the publisher: from the subscriber backwards, they add up to the cost of a way beyond the
    shortest, so a Dijkstra with a limit visits no more than the corridor.

    Each arc has its ``request``, ascending, and the ``arc`` of the instance, shape (S,); each
    request the cost of its ``shortest`` way, at most the penalty, shape (R,).
    """

    def __init__(self, instance: Instance, paths: ShortestPaths, watch: Watch) -> None:
        self.instance = instance
        self._outside = np.full(instance.requests, instance.unmet_penalty)
        self.shortest = self._outside.copy()
        self.complete = True
        parts: list[tuple[IntArray, IntArray]] = []
        for topic in range(instance.topics):
            if watch.over():
                self.complete = False
                return
            parts.append(self._of_topic(topic, paths))
        self.request = np.concatenate([request for request, _ in parts])
        self.arc = np.concatenate([arc for _, arc in parts])
        self._number()

    def _of_topic(self, topic: int, paths: ShortestPaths) -> tuple[IntArray, IntArray]:
        """Requests and arcs of the corridors of ``topic``."""
        instance = self.instance
        usable = instance.usable(topic)
        lengths = np.where(usable, instance.cost, np.inf)
        source = instance.publisher[topic : topic + 1]
        distance = paths.trees(lengths[None, :], source).distance[0]
        requests = instance.requests_of(topic)
        targets = instance.request_node[requests]
        shortest = distance[targets]
        self.shortest[requests] = np.minimum(shortest, instance.unmet_penalty)
        slack = SLACK_UNITS * float(instance.cost.mean()) + SLACK_SHARE * shortest
        slack[shortest >= instance.unmet_penalty] = -1.0
        self._outside[requests] = np.minimum(
            shortest + np.maximum(slack, 0), instance.unmet_penalty
        )
        there = np.flatnonzero(usable & np.isfinite(distance[instance.tail]))
        tail, head = instance.tail[there], instance.head[there]
        reduced = np.maximum(0.0, instance.cost[there] + distance[tail] - distance[head])
        backwards = csr_matrix((reduced, (head, tail)), shape=(instance.nodes, instance.nodes))
        limit = max(0.0, float(slack.max()))
        beyond = dijkstra(backwards, indices=targets, limit=limit).reshape(len(targets), -1)
        request, place = np.nonzero(reduced + beyond[:, head] <= slack[:, None])
        return request + requests.start, there[place]

    def _number(self) -> None:
        """Number nodes, corridor after corridor, and divide the graph into chunks."""
        instance = self.instance
        requests, nodes = instance.requests, np.int64(instance.nodes)
        all_requests = np.arange(requests)
        ends = [
            all_requests * nodes + instance.publisher[instance.request_topic],
            all_requests * nodes + instance.request_node,
        ]
        tail = self.request * nodes + instance.tail[self.arc]
        head = self.request * nodes + instance.head[self.arc]
        names = np.unique(np.concatenate([tail, head, *ends]))
        self._tail, self._head = np.searchsorted(names, tail), np.searchsorted(names, head)
        order = np.lexsort((self._head, self._tail))
        self.request, self.arc = self.request[order], self.arc[order]
        self._tail, self._head = self._tail[order], self._head[order]
        self._count = len(names)
        self._keys = self._tail * np.int64(self._count) + self._head
        self._source, self._target = (np.searchsorted(names, keys) for keys in ends)
        first_node = np.searchsorted(names, np.append(all_requests, requests) * nodes)
        starts = np.searchsorted(self._tail, np.arange(self._count + 1))
        self._chunks: list[tuple[int, int, slice, csr_matrix]] = []
        first = 0
        while first < requests:
            end = int(np.searchsorted(first_node, first_node[first] + CHUNK_NODES, side="right"))
            end = min(requests, max(first + 1, end - 1))
            low, high = int(first_node[first]), int(first_node[end])
            arcs = slice(int(starts[low]), int(starts[high]))
            graph = csr_matrix(
                (
                    np.zeros(arcs.stop - arcs.start),
                    (self._head[arcs] - low).astype(np.int32),
                    (starts[low : high + 1] - arcs.start).astype(np.int32),
                ),
                shape=(high - low, high - low),
            )
            self._chunks.append((first, end, arcs, graph))
            first = end
        self._first_node = first_node

    def walk(self, lengths: FloatArray) -> Walks:
        """The cheapest ways when arcs have ``lengths``, shape (S,), no less than their costs."""
        distance = np.empty(self._count)
        before = np.empty(self._count, dtype=np.int64)
        for first, end, arcs, graph in self._chunks:
            low, high = int(self._first_node[first]), int(self._first_node[end])
            graph.data[:] = lengths[arcs]
            distance[low:high], before[low:high], _ = dijkstra(
                graph,
                indices=self._source[first:end] - low,
                min_only=True,
                return_predecessors=True,
            )
            before[low:high] = np.where(before[low:high] < 0, -1, before[low:high] + low)
        inside = distance[self._target]
        value = np.minimum(inside, self._outside)
        served = np.flatnonzero(inside <= self._outside)
        walker, keys = walk_back(
            self._target[served], lambda _, here: before[here], nodes=self._count
        )
        return Walks(value, served[walker], np.searchsorted(self._keys, keys))
