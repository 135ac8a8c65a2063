"""The federation as a drawing: brokers as circles, links as lines as wide as what they carried.

Places are found as by Kamada and Kawai: springs as long as the shortest paths (An algorithm for
drawing general undirected graphs, 1989); it shows rings as rings and grids as grids, but costs n
cubed, so above a bound force-directed placement takes over (Fruchterman and Reingold, 1991). Both
start from fixed places: equal topologies get equal pictures.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import networkx as nx
from markupsafe import Markup

from federator_analytics.digest.broker import cut, name_of
from federator_analytics.digest.liveness import Liveness
from federator_analytics.digest.tables import Row
from federator_analytics.digest.units import duration, percent, size

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


WIDTH, HEIGHT, EDGE = 720, 440, 30
LABELLED_MAX = 40
"""Round trips and names are written in the picture of a federation no larger than this."""
NAMED_LEFT, NAMED_TOP = 56, 40
"""Edges of a picture with names below its brokers."""
_LEAST, _MOST = 1.5, 8.0


def topology(state: Liveness, links: Sequence[Row]) -> Markup:
    """SVG in the colours of the style sheet; every part has a title to hover over."""
    is_named = len(state.brokers) <= LABELLED_MAX and any(map(name_of, state.brokers))
    left, top = (NAMED_LEFT, NAMED_TOP) if is_named else (EDGE, EDGE)
    places = {
        broker: (left + x * (WIDTH - 2 * left), top + y * (HEIGHT - 2 * top))
        for broker, (x, y) in layout(state.brokers, state.links).items()
    }
    radius = max(7.0, min(17.0, 90 / math.sqrt(max(len(places), 1))))
    known = {(row["a"], row["b"]): row for row in links}
    busiest = max((row["bytes_ab"] + row["bytes_ba"] for row in links), default=0)
    parts = [_link(pair, state, known.get(pair), busiest, places) for pair in sorted(state.links)]
    if len(places) <= LABELLED_MAX:
        parts += [_trip(row, places) for row in links if row["round_trip_us_p50"] is not None]
    # Of the state, for the layout of a topology outlives its names.
    parts += [_broker(broker, state, places[broker], radius) for broker in sorted(state.brokers)]
    if is_named:
        parts += [_name(broker, places[broker], radius) for broker in sorted(state.brokers)]
    head = Markup('<svg class="topology" role="img" viewBox="0 0 {} {}" aria-label="{}">')
    label = f"Topology: {len(places)} brokers, {len(state.links)} links"
    return head.format(WIDTH, HEIGHT, label) + Markup("").join(parts) + Markup("</svg>")


def _link(
    pair: tuple[int, int],
    state: Liveness,
    row: Row | None,
    busiest: int,
    places: Mapping[int, tuple[float, float]],
) -> Markup:
    (x1, y1), (x2, y2) = places[pair[0]], places[pair[1]]
    carried = row["bytes_ab"] + row["bytes_ba"] if row else 0
    wide = _LEAST + (_MOST - _LEAST) * math.sqrt(carried / busiest if busiest else 0)
    share = row["up_share"] if row else None
    is_cut = state.links[pair] == "down" and pair in state.lost
    kind = "down" if is_cut else "shaky" if pair in state.lost else "up"
    trip = duration(row["round_trip_us_p50"]) if row else ""
    tip = f"link {pair[0]} \N{EN DASH} {pair[1]}: up {percent(share)}, round trip {trip}, "
    tip += f"{size(carried)} carried" + (", down at the end" if kind == "down" else "")
    return Markup(
        '<g class="link {}"><title>{}</title>'
        '<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke-width="{:.1f}"/></g>'
    ).format(kind, tip, x1, y1, x2, y2, wide)


def _trip(row: Row, places: Mapping[int, tuple[float, float]]) -> Markup:
    """The round trip, written on the middle of its link."""
    (x1, y1), (x2, y2) = places[row["a"]], places[row["b"]]
    text = '<text x="{:.1f}" y="{:.1f}" class="trip">{}</text>'
    return Markup(text).format((x1 + x2) / 2, (y1 + y2) / 2 + 4, duration(row["round_trip_us_p50"]))


def _broker(broker: int, state: Liveness, place: tuple[float, float], radius: float) -> Markup:
    x, y = place
    kind = state.brokers[broker]
    word = {"up": "alive", "down": "down at the end", "stopped": "told to stop"}[kind]
    text = str(int(broker))
    font = radius * min(1.0, 2.6 / len(text))
    cross = ""
    if kind == "down":
        cross = Markup('<path d="M{:.1f},{:.1f}l{:.1f},{:.1f}m0,{:.1f}l{:.1f},{:.1f}"/>').format(
            x - radius, y - radius, 2 * radius, 2 * radius, -2 * radius, -2 * radius, 2 * radius
        )
    return Markup(
        '<g class="broker {}"><title>broker {}: {}</title>'
        '<circle cx="{:.1f}" cy="{:.1f}" r="{:.1f}"/>'
        '<text x="{:.1f}" y="{:.1f}" font-size="{:.1f}">{}</text>{}</g>'
    ).format(kind, broker, word, x, y, radius, x, y + font * 0.36, font, text, cross)


def _name(broker: int, place: tuple[float, float], radius: float) -> Markup:
    """What the broker is called, below it."""
    text = '<text x="{:.1f}" y="{:.1f}" class="name">{}</text>'
    return Markup(text).format(place[0], place[1] + radius + 12, cut(name_of(broker)))
