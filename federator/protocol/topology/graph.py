"""Connectivity of a graph of brokers: parts, brokers and links it cannot lose, diameter.

An articulation point is a broker that the others need to stay connected; a bridge is a link that
all need. A graph without either survives any single death, and is called 2-connected.

Source: Tarjan, "Depth-first search and linear graph algorithms", SIAM J. Comput. 1 (1972).
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from federator.protocol.types import BrokerId

Pair = tuple[BrokerId, BrokerId]
"""A link, the smaller id first."""

Near = Mapping[BrokerId, Collection[BrokerId]]
"""Each broker's neighbours. Symmetric, and every neighbour is a key."""

DIAMETER_BROKERS_MAX = 2_000
"""Above this the diameter takes too long to compute, and is not given."""


def near_of(brokers: Iterable[BrokerId], links: Iterable[Pair]) -> dict[BrokerId, set[BrokerId]]:
    """Each broker's neighbours; links of brokers not in ``brokers`` are left out."""
    near: dict[BrokerId, set[BrokerId]] = {id: set() for id in brokers}
    for a, b in links:
        if a in near and b in near and a != b:
            near[a].add(b)
            near[b].add(a)
    return near


def without(near: Near, gone: Collection[BrokerId]) -> dict[BrokerId, set[BrokerId]]:
    """The graph without ``gone``."""
    left = frozenset(near) - frozenset(gone)
    return {id: set(others) & left for id, others in near.items() if id in left}


def hops_from(near: Near, start: BrokerId) -> dict[BrokerId, int]:
    """The number of links from ``start`` to each broker in its part."""
    hops = {start: 0}
    frontier = deque([start])
    while frontier:
        here = frontier.popleft()
        for other in near[here]:
            if other not in hops:
                hops[other] = hops[here] + 1
                frontier.append(other)
    return hops


def parts_of(near: Near) -> list[frozenset[BrokerId]]:
    """The connected parts, the largest first."""
    parts: list[frozenset[BrokerId]] = []
    seen: set[BrokerId] = set()
    for id in sorted(near):
        if id not in seen:
            part = frozenset(hops_from(near, id))
            seen |= part
            parts.append(part)
    return sorted(parts, key=lambda part: (-len(part), min(part)))


def diameter_of(near: Near) -> int | None:
    """The number of links on the longest of all shortest paths.

    ``None`` when two brokers have no path, or there are too many brokers to compute it.
    """
    if not near or len(near) > DIAMETER_BROKERS_MAX:
        return None
    most = 0
    for id in near:
        hops = hops_from(near, id)
        if len(hops) < len(near):
            return None
        most = max(most, *hops.values())
    return most


@dataclass(frozen=True, slots=True)
class Weak:
    """The brokers and links that a graph needs to stay connected, ascending."""

    brokers: tuple[BrokerId, ...]  # articulation points
    links: tuple[Pair, ...]  # bridges


def weak_of(near: Near) -> Weak:
    """The articulation points and bridges."""
    order: dict[BrokerId, int] = {}
    low: dict[BrokerId, int] = {}
    points: set[BrokerId] = set()
    bridges: set[Pair] = set()
    for root in sorted(near):
        if root in order:
            continue
        order[root] = low[root] = len(order)
        children_of_root = 0
        path = [(root, iter(sorted(near[root])), root)]
        while path:  # an explicit stack: a long line of brokers would exceed the recursion limit
            here, others, parent = path[-1]
            other = next(others, None)
            if other is None:
                path.pop()
                if here == root:
                    continue
                low[parent] = min(low[parent], low[here])
                if low[here] > order[parent]:
                    bridges.add((min(here, parent), max(here, parent)))
                if parent != root and low[here] >= order[parent]:
                    points.add(parent)
                children_of_root += parent == root
            elif other not in order:
                order[other] = low[other] = len(order)
                path.append((other, iter(sorted(near[other])), here))
            elif other != parent:
                low[here] = min(low[here], order[other])
        if children_of_root > 1:
            points.add(root)
    return Weak(tuple(sorted(points)), tuple(sorted(bridges)))


def can_spare(near: Near, a: BrokerId, b: BrokerId) -> bool:
    """Whether no single death parts more of the graph without the link of ``a`` and ``b``.

    That holds when two other paths between them have no broker in common: then, whichever broker
    dies, the rest has as many parts without the link as with it.
    """
    once = _way(near, a, b, frozenset())
    if once is None:
        return False
    return all(_way(near, a, b, frozenset({on_it})) is not None for on_it in once[1:-1])


def _way(near: Near, a: BrokerId, b: BrokerId, avoid: frozenset[BrokerId]) -> list[BrokerId] | None:
    """A shortest path from ``a`` to ``b`` other than their link that avoids ``avoid``."""
    came_from: dict[BrokerId, BrokerId] = {a: a}
    frontier = deque([a])
    while frontier:
        here = frontier.popleft()
        for other in near[here]:
            if other in came_from or other in avoid or (here, other) == (a, b):
                continue
            came_from[other] = here
            if other != b:
                frontier.append(other)
                continue
            way = [b]
            while way[-1] != a:
                way.append(came_from[way[-1]])
            return way[::-1]
    return None


@dataclass(frozen=True, slots=True)
class Strength:
    """The connectivity of a graph."""

    brokers: int
    links: int
    parts: tuple[tuple[BrokerId, ...], ...]  # connected, the largest first, each ascending
    weak: Weak
    diameter: int | None  # as ``diameter_of``
    degree_min: int  # links of a broker
    degree_max: int

    @property
    def survives_any_death(self) -> bool:
        """Whether the graph is connected, and stays so whichever broker dies."""
        return len(self.parts) <= 1 and not self.weak.brokers


def strength_of(near: Near) -> Strength:
    """Compute the connectivity of the graph."""
    degrees = [len(others) for others in near.values()]
    return Strength(
        brokers=len(near),
        links=sum(degrees) // 2,
        parts=tuple(tuple(sorted(part)) for part in parts_of(near)),
        weak=weak_of(near),
        diameter=diameter_of(near),
        degree_min=min(degrees, default=0),
        degree_max=max(degrees, default=0),
    )
