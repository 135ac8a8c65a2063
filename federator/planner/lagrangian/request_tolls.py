"""A bound from tolls that each request pays by itself, and links that carry whole topics only.

Let request r pay a toll of its own on each link, on top of the cost of its way. A topic that uses a
link then pays at most what its requests pay there together, its **place**; and a link can sell
places only to topics that fit on it side by side, whole topics, not parts. So

    bound = sum over requests of min(penalty, shortest path under cost + toll)
            - sum over links of the dearest set of places that fit

is valid for all tolls. It is stronger than one price per unit of rate (``relaxation``) for two
reasons: whoever shares an arc is charged as it needs, not equally; and a link that has room for 9
of 10 units must turn a topic away as a whole, which a price per unit does not see.

Tolls follow a subgradient, averaged over the last steps (use of a link by a request, less the
link's sale to its topic); steps shrink harmonically, and with the length of paths, along which
tolls add up. Paths stay in ``corridors``.

Source: M. Guignard, S. Kim, "Lagrangean decomposition" (1987): a copy of the routing for the links.
"""

import math
from collections.abc import Iterator

import numpy as np

from federator.planner.flow.instance import BoolArray, FloatArray, Instance, IntArray
from federator.planner.flow.shortest_paths import ShortestPaths
from federator.planner.flow.watch import UNWATCHED, Watch
from federator.planner.lagrangian import covers
from federator.planner.lagrangian.corridors import Corridors

STEP_MAX = 0.3
STEP_BY_HOPS = 2.4
"""First step, in mean costs of an arc: so much by the mean length of a path in arcs."""
HALF_LIFE = 60
"""Rounds after which steps are half as long."""
HABIT = 0.9
"""What of the direction is kept from round to round."""


class RequestTolls:
    """The tolls, and what they prove.

    Tolls belong to pairs (request, channel): P of them, where the channel is contested, that is,
    where the topics whose corridors it lies in do not fit together.
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
        """Find pairs (request, channel), and places (channel, topic) that they add up to."""
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
        """What links can earn at most, and whom they turn away, one per place."""
        places = len(self._link)
        price = np.bincount(self._place, self.tolls, minlength=places).astype(np.float64)
        wanted = np.bincount(self._place, uses, minlength=places) > 0
        active = np.flatnonzero((price > 0) | wanted)
        cover = covers.cheapest(
            self._link[active],
            self.instance.rate[self._topic[active]],
            price[active],
            self.instance.capacity,
        )
        turned_away = np.zeros(places, dtype=bool)
        turned_away[active] = cover.leaves
        return float(price.sum()) - cover.loss, turned_away
