"""Trees worth remembering at given tolls: all topics at once, by three ways to look at a toll.

A topic pays a toll once per arc, however many requests go through it. ``by_share`` pretends that
each request pays a fixed part of it and takes the shortest path tree. ``by_turns`` lets subscribers
come one after the other, in random order: who comes later finds the tolls of the arcs before it
paid, and tends to follow; of the arcs so chosen the shortest path tree remains.
"""

import numpy as np

from federator.planner.instance import FloatArray, Instance
from federator.planner.pool import TreePool
from federator.planner.shortest_paths import ShortestPaths

PARTS = (1.0, 0.5, 0.0)
"""Between everybody paying the whole toll (1) and an equal share of it (0)."""


class TreeFinder:
    """Finds trees and puts them into ``pool``."""

    def __init__(self, instance: Instance, paths: ShortestPaths, pool: TreePool) -> None:
        self._instance = instance
        self._paths = paths
        self._pool = pool
        usable = np.stack([instance.usable(k) for k in range(instance.topics)])
        self._cost = np.where(usable, instance.cost, np.inf)

    def find(self, toll: FloatArray, rng: np.random.Generator) -> None:
        """Look both ways.

        Args:
            toll: Per unit of rate, shape (A,).
            rng: Orders subscribers.
        """
        self.by_share(toll)
        self.by_turns(toll, rng)

    def by_share(self, toll: FloatArray) -> None:
        """One tree per topic and part."""
        instance = self._instance
        for part in PARTS:
            weight = part + (1 - part) / instance.fan_out
            self._remember(self._cost + toll[None, :] * (instance.rate * weight)[:, None])

    def by_turns(self, toll: FloatArray, rng: np.random.Generator) -> None:
        """One tree per topic."""
        instance = self._instance
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
        instance = self._instance
        trees = self._paths.trees(lengths, instance.publisher)
        reached = np.isfinite(trees.distance[instance.request_topic, instance.request_node])
        layer = instance.request_topic[reached]
        walker, arcs = self._paths.walk(trees, layer, instance.request_node[reached])
        topic_of = layer[walker]
        paid = np.bincount(topic_of, instance.cost[arcs], minlength=instance.topics)
        unmet = np.bincount(instance.request_topic[~reached], minlength=instance.topics)
        price = paid + unmet * instance.unmet_penalty
        for topic in range(instance.topics):
            self._pool.add(topic, np.unique(arcs[topic_of == topic]), float(price[topic]))
