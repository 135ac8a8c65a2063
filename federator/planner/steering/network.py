"""The brokers and links that agents report, and the ordinary way of a flow.

The ordinary way is that of docs/protocol.md 14.3: each broker forwards to the neighbour with the
least cost to the destination, of several to the one with the smallest id. So the ways from one
origin are a tree.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import dijkstra

from federator.planner.flow.instance import BoolArray, FloatArray, IntArray
from federator.protocol.messages.steering import Load
from federator.protocol.types import BrokerId

Ends = tuple[BrokerId, BrokerId]
"""A directed link: the sender and the receiver."""

_CLOSE = 1e-9


@dataclass(frozen=True, slots=True)
class Link:
    """One direction of a link."""

    cost: float
    open: bool  # whether a tree may use it


class Network:
    """N brokers, A directed links; indices are positions in ``brokers`` and ``links``.

    Args:
        links: By their ends.
    """

    def __init__(self, links: Mapping[Ends, Link]) -> None:
        self.links_by_ends = dict(links)
        self.brokers = sorted({end for ends in links for end in ends})
        self.links = sorted(links)  # by tail, then by head: so the first of equals is the smallest
        self.at = {ends: position for position, ends in enumerate(self.links)}
        self.node = {broker: position for position, broker in enumerate(self.brokers)}
        self.tail: IntArray = np.array([self.node[a] for a, _ in self.links], dtype=np.intp)
        self.head: IntArray = np.array([self.node[b] for _, b in self.links], dtype=np.intp)
        self.cost: FloatArray = np.array([links[ends].cost for ends in self.links])
        self.open: BoolArray = np.array([links[ends].open for ends in self.links], dtype=bool)
        self._next: dict[BrokerId, list[int]] = {}
        self._ways: dict[tuple[BrokerId, tuple[BrokerId, ...]], tuple[int, ...]] = {}
        size = len(self.brokers)
        # Reversed, so that one call of Dijkstra covers all senders to a destination.
        self._back = csr_matrix((self.cost, (self.head, self.tail)), shape=(size, size))

    def way(self, origin: BrokerId, destinations: tuple[BrokerId, ...]) -> tuple[int, ...]:
        """The links of a flow's ordinary way, ascending; unreachable destinations are left out."""
        key = origin, destinations
        if key not in self._ways:
            used: set[int] = set()
            for destination in destinations:
                used.update(self._path(origin, destination))
            self._ways[key] = tuple(sorted(used))
        return self._ways[key]

    def distances(self, brokers: Sequence[BrokerId]) -> FloatArray:
        """The distance from each broker to each, infinite where no links lead, shape (B, B)."""
        far = np.where(np.eye(len(brokers), dtype=bool), 0.0, inf)
        rows = [row for row, broker in enumerate(brokers) if broker in self.node]
        nodes = [self.node[brokers[row]] for row in rows]
        if nodes:
            far[np.ix_(rows, rows)] = dijkstra(self._back, indices=nodes)[:, nodes].T
        return far

    def tree(self, links: Iterable[int]) -> dict[BrokerId, BrokerId]:
        """The parent of each broker that those ``links`` lead to."""
        return {self.links[link][1]: self.links[link][0] for link in links}

    def _path(self, origin: BrokerId, destination: BrokerId) -> list[int]:
        if origin not in self.node or destination not in self.node:
            return []
        onward = self._onward(destination)
        at, path = self.node[origin], list[int]()
        while at != self.node[destination]:
            if onward[at] < 0 or len(path) > len(self.brokers):
                return []
            path.append(onward[at])
            at = int(self.head[onward[at]])
        return path

    def _onward(self, destination: BrokerId) -> list[int]:
        """The link on which each broker forwards to ``destination``; -1 if there is none."""
        if destination not in self._next:
            far: FloatArray = dijkstra(self._back, indices=self.node[destination])
            onward = np.full(len(self.brokers), -1, dtype=np.intp)
            with np.errstate(invalid="ignore"):
                best = np.abs(self.cost + far[self.head] - far[self.tail]) <= _CLOSE
            good = np.flatnonzero(best & np.isfinite(far[self.tail]))[::-1]
            onward[self.tail[good]] = good  # in reverse, so the first one wins
            self._next[destination] = onward.tolist()
        return self._next[destination]


def network_of(loads: Iterable[Load]) -> Network:
    """The network that agents report. Trees use only links between two of them that no rule closes.

    A broker without a reporting agent may still forward on ordinary ways; we assume that its links
    are like those towards it.
    """
    links: dict[Ends, Link] = {}
    by_broker = {load.broker: load for load in loads}
    for load in by_broker.values():
        for link in load.links:
            if link.neighbour == load.broker:
                continue
            ends = load.broker, link.neighbour
            links[ends] = Link(float(link.cost), link.open and link.neighbour in by_broker)
            if link.neighbour not in by_broker:
                links.setdefault((link.neighbour, load.broker), Link(float(link.cost), False))
    return Network(links)


def capacities_of(loads: Iterable[Load], network: Network) -> FloatArray:
    """The capacity of each link in bit/s; infinite if unknown, shape (A,)."""
    capacity = np.full(len(network.links), inf)
    for load in loads:
        for link in load.links:
            if link.capacity and (load.broker, link.neighbour) in network.at:
                capacity[network.at[load.broker, link.neighbour]] = link.capacity
    return capacity


def narrowest_learnt(loads: Iterable[Load]) -> float:
    """The least learnt capacity, bit/s; infinite without any."""
    learnt = [link.capacity for load in loads for link in load.links if link.learnt]
    return min((capacity for capacity in learnt if capacity), default=inf)
