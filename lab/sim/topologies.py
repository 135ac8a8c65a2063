"""Graphs to federate: who is linked with whom. Every graph here is connected.

Ids are 0 to ``nodes - 1``; callers that want ids to say nothing about places shuffle them.
"""

import math
import random
from collections.abc import Callable, Iterable
from itertools import combinations

from federator.protocol.topology.graph import near_of, parts_of
from federator.protocol.types import BrokerId
from lab.sim.plan import Link, link_of

ANY = "any"


def grid(rows: int, columns: int) -> list[Link]:
    """Neighbours in a row and in a column; ids by row."""
    links = []
    for row in range(rows):
        for column in range(columns):
            here = row * columns + column
            if column + 1 < columns:
                links.append(_link(here, here + 1))
            if row + 1 < rows:
                links.append(_link(here, here + columns))
    return links


def line(nodes: int) -> list[Link]:
    return [_link(a, a + 1) for a in range(nodes - 1)]


def tree(nodes: int, rng: random.Random) -> list[Link]:
    """Every node but 0 hangs on a random earlier one."""
    return [_link(rng.randrange(node), node) for node in range(1, nodes)]


def random_connected(nodes: int, rng: random.Random) -> list[Link]:
    """A random tree and up to as many links again."""
    links = dict.fromkeys(tree(nodes, rng))
    for _ in range(rng.randint(0, nodes)):
        a, b = rng.randrange(nodes), rng.randrange(nodes)
        if a != b:
            links[_link(a, b)] = None
    return list(links)


def random_geometric(nodes: int, rng: random.Random) -> list[Link]:
    """Points in a square, linked when near; parts are joined by their closest pair."""
    places = [(rng.random(), rng.random()) for _ in range(nodes)]
    radius = math.sqrt(1.5 * math.log(nodes + 1) / (math.pi * nodes))
    links = [
        _link(a, b)
        for a, b in combinations(range(nodes), 2)
        if math.dist(places[a], places[b]) <= radius
    ]
    while len(parts := connected_parts(range(nodes), links)) > 1:
        inside = parts[0]
        a, b = min(
            ((a, b) for a in inside for b in range(nodes) if b not in inside),
            key=lambda pair: (math.dist(places[pair[0]], places[pair[1]]), pair),
        )
        links.append(_link(a, b))
    return links


def near_square(nodes: int) -> list[Link]:
    """The squarest grid of at least ``nodes`` cells, less the cells beyond."""
    columns = math.ceil(math.sqrt(nodes))
    return [link for link in grid(math.ceil(nodes / columns), columns) if link[1] < nodes]


_MAKERS: dict[str, Callable[[int, random.Random], list[Link]]] = {
    "grid": lambda nodes, _: near_square(nodes),
    "line": lambda nodes, _: line(nodes),
    "ring": lambda nodes, _: line(nodes) + ([_link(0, nodes - 1)] if nodes > 2 else []),
    "star": lambda nodes, _: [_link(0, leaf) for leaf in range(1, nodes)],
    "tree": tree,
    "random": random_connected,
    "geometric": random_geometric,
    "full": lambda nodes, _: [_link(a, b) for a, b in combinations(range(nodes), 2)],
}

NAMES = tuple(_MAKERS)

_WEIGHTS = {"grid": 5, "ring": 3, "line": 2, "star": 2, "tree": 3, "random": 6, "geometric": 4}
FULL_NODES_MAX = 8  # larger full graphs are drawn only on request: their links grow with the square


def draw(name: str, nodes: int, rng: random.Random) -> tuple[str, list[Link]]:
    if name == ANY:
        weights = _WEIGHTS | ({"full": 2} if nodes <= FULL_NODES_MAX else {})
        name = rng.choices(list(weights), list(weights.values()))[0]
    return name, _MAKERS[name](nodes, rng)


def connected_parts(nodes: Iterable[int], links: Iterable[Link]) -> list[frozenset[BrokerId]]:
    """The connected parts, each a set of nodes, ordered by smallest node."""
    return sorted(parts_of(near_of(map(BrokerId, nodes), links)), key=min)


def _link(a: int, b: int) -> Link:
    return link_of(BrokerId(a), BrokerId(b))
