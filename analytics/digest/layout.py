"""Places for brokers on a drawing, so that linked ones stand near each other and none on another.

Kamada and Kawai: springs as long as the shortest paths (An algorithm for drawing general undirected
graphs, 1989); it shows rings as rings and grids as grids, but costs n cubed, so above a bound
force-directed placement takes over (Fruchterman and Reingold, 1991). Both start from fixed places:
equal topologies get equal pictures.
"""

from collections.abc import Iterable
from functools import lru_cache

import networkx as nx

SPRINGS_MAX = 80
"""Brokers laid out by shortest paths: 80 take a quarter of a second."""
TOPOLOGIES_KEPT = 8
"""A dashboard draws the same brokers and links again and again."""
_SEED = 7


def layout(
    brokers: Iterable[int], links: Iterable[tuple[int, int]]
) -> dict[int, tuple[float, float]]:
    """A place in the unit square for every broker; parts without a link between stand apart."""
    return dict(_places(tuple(sorted(brokers)), tuple(sorted(links))))


@lru_cache(maxsize=TOPOLOGIES_KEPT)
def _places(
    brokers: tuple[int, ...], links: tuple[tuple[int, int], ...]
) -> dict[int, tuple[float, float]]:
    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(brokers)
    graph.add_edges_from(links)
    if not graph:
        return {}
    parts = sorted(nx.connected_components(graph), key=lambda part: (-len(part), min(part)))
    places: dict[int, tuple[float, float]] = {}
    left = 0.0
    for part in parts:
        wide = max(len(part), 1) ** 0.5
        inner = _part(graph.subgraph(sorted(part)))
        places |= {broker: (left + x * wide, y * wide) for broker, (x, y) in inner.items()}
        left += wide + 0.6
    return _unit(places)


def _part(graph: "nx.Graph[int]") -> dict[int, tuple[float, float]]:
    if len(graph) <= 1:
        return dict.fromkeys(graph, (0.5, 0.5))
    circle = nx.circular_layout(graph)
    if len(graph) <= SPRINGS_MAX:
        found = nx.kamada_kawai_layout(graph, pos=circle)
    else:
        found = nx.spring_layout(graph, pos=circle, seed=_SEED)
    return _unit({broker: (float(x), float(y)) for broker, (x, y) in found.items()})


def _unit(places: dict[int, tuple[float, float]]) -> dict[int, tuple[float, float]]:
    """Moved and stretched alike in both directions into the unit square, in the middle of it."""
    xs, ys = zip(*places.values(), strict=True)
    span = max(max(xs) - min(xs), max(ys) - min(ys)) or 1.0
    middle_x, middle_y = (max(xs) + min(xs)) / 2, (max(ys) + min(ys)) / 2
    return {
        broker: (0.5 + (x - middle_x) / span, 0.5 + (y - middle_y) / span)
        for broker, (x, y) in places.items()
    }
