"""Instances to practise on, from a seed: the paper's six sizes, grids, points in a plane, networks.

The paper's files are gone, so its sizes are filled by chance (``table1``): brokers form a ring with
chords, each publisher and subscriber hangs on one or more brokers. Its arcs count both directions
between brokers and one dummy arc per request, as tinyInstance shows.

Tightness is set from the traffic itself: every request is sent along its shortest path, and each
link gets a share of what would then flow through it, rounded up to whole rates. Below 1 some
topics must go around. As in all of the paper's instances everybody can be served: topics are routed
one after the other, and where one finds no room left, the links of its cheapest detour are widened.

Networks that exist are SNDlib's and the Topology Zoo's graphs, from the package ``topohub``:
brokers stand where the network has nodes, and a link costs its length in units of ``KM_PER_COST``.
"""

import json
import math
import re
from collections import Counter
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import combinations
from typing import Any

import numpy as np
from numpy.random import Generator
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from federator.errors import InstanceError
from federator.planner.flow.instance import FloatArray, Instance
from federator.planner.flow.instance_file import (
    VERSION,
    InstanceFile,
    LinkEntry,
    NodeEntry,
    TopicEntry,
    build,
)
from federator.planner.flow.shortest_paths import ShortestPaths
from federator.planner.flow.workbench import Workbench

RATE_MAX = 4
DETOUR_RATHER_THAN_WIDEN = 4
"""Dearest arcs that a detour may cost before a full link is widened instead."""
COST_MAX = 9
NEAR = 4
KM_PER_COST = 50.0


@dataclass(frozen=True, slots=True)
class Size:
    """A row of the paper's Table 1."""

    name: str
    nodes: int
    arcs: int
    topics: int
    subscribers: int

    @property
    def brokers(self) -> int:
        return self.nodes - self.topics - self.subscribers


TABLE_1 = (
    Size("tinyInstance", 6, 13, 2, 1),
    Size("case2", 11, 23, 3, 2),
    Size("case3", 20, 57, 6, 3),
    Size("res0", 14, 28, 5, 6),
    Size("res5", 75, 165, 31, 24),
    Size("res7", 71, 244, 31, 23),
)
"""Sizes of the paper's Table 1."""


def table1(size: Size, *, seed: int, tightness: float = 0.75) -> Instance:
    """An instance with exactly the nodes, arcs, topics and subscribers of ``size``."""
    rng = np.random.default_rng([seed, size.nodes, size.arcs])
    brokers = [f"b{i}" for i in range(size.brokers)]
    sinks = [f"s{i}" for i in range(size.subscribers)]
    edges = _ring(size.brokers)
    asked = _ask(size, rng)
    spare = size.arcs - 2 * len(edges) - size.topics - size.subscribers
    spare -= sum(map(len, asked))
    while spare < 0:  # too many requests for so few arcs
        if not _ask_less(asked):
            if not len(edges) >= size.brokers > 2:
                raise InstanceError(f"{size.name}: {size.arcs} arcs: more wanted")
            edges.pop()  # a ring becomes a line
            spare += 1
        spare += 1
    absent = [pair for pair in combinations(range(size.brokers), 2) if pair not in edges]
    rng.shuffle(absent)
    chords = min(len(absent), round(0.6 * spare) // 2)
    edges += [(int(a), int(b)) for a, b in absent[:chords]]
    spare -= 2 * chords
    links = [
        LinkEntry(brokers[a], brokers[b], 1.0, cost=float(rng.integers(1, COST_MAX + 1)))
        for a, b in edges
    ]
    publishers = [f"p{i}" for i in range(size.topics)]
    links += _attach(publishers, sinks, brokers, spare, rng)
    topics = [
        TopicEntry(
            name=f"t{k}",
            rate=float(rng.integers(1, RATE_MAX + 1)),
            publisher=publishers[k],
            subscribers=[sinks[t] for t in sorted(asked[k])],
        )
        for k in range(size.topics)
    ]
    nodes = [NodeEntry(name) for name in brokers]
    nodes += [NodeEntry(name, role="publisher") for name in publishers]
    nodes += [NodeEntry(name, role="subscriber") for name in sinks]
    file = InstanceFile(VERSION, "edge", nodes, links, topics, name=f"{size.name}-{seed}")
    return tighten(file, tightness=tightness)


def _ring(nodes: int) -> list[tuple[int, int]]:
    if nodes < 3:
        return [(0, 1)] if nodes == 2 else []
    return [*((i, i + 1) for i in range(nodes - 1)), (0, nodes - 1)]


def _ask(size: Size, rng: Generator) -> list[list[int]]:
    """Subscribers of each topic: every topic has one, every subscriber asks for something."""
    asked: list[set[int]] = [set() for _ in range(size.topics)]
    for sink in range(size.subscribers):
        asked[int(rng.integers(size.topics))].add(sink)
    for topic in asked:
        wanted = int(rng.integers(1, min(4, size.subscribers) + 1))
        while len(topic) < wanted:
            topic.add(int(rng.integers(size.subscribers)))
    lists = [sorted(topic) for topic in asked]
    for order in lists:
        rng.shuffle(order)
    return lists


def _ask_less(asked: list[list[int]]) -> bool:
    """Drop a request of the topic that has most, if topic and subscriber both keep another."""
    times = Counter(sink for sinks in asked for sink in sinks)
    for sinks in sorted(asked, key=len, reverse=True):
        spared = [sink for sink in sinks if times[sink] > 1]
        if len(sinks) > 1 and spared:
            sinks.remove(spared[-1])
            return True
    return False


def _attach(
    publishers: list[str], sinks: list[str], brokers: list[str], spare: int, rng: Generator
) -> list[LinkEntry]:
    """One link to a broker for each client, and ``spare`` more."""
    clients = publishers + sinks
    near = {client: {int(rng.integers(len(brokers)))} for client in clients}
    free = [(client, b) for client in clients for b in range(len(brokers)) if b not in near[client]]
    order = rng.permutation(len(free))
    if spare > len(free):
        raise InstanceError(f"{spare} arcs left over: fewer arcs or more nodes wanted")
    for client, broker in (free[i] for i in order[:spare]):
        near[client].add(broker)
    links = []
    for client in clients:
        for broker in sorted(near[client]):
            ends = (client, brokers[broker])
            a, b = ends if client in publishers else ends[::-1]
            cost = float(rng.integers(1, COST_MAX + 1))
            links.append(LinkEntry(a, b, 1.0, cost=cost, both=False))
    return links


def grid(
    rows: int, columns: int, *, topics: int, fan_out: int, seed: int, tightness: float = 0.9
) -> Instance:
    """Brokers in rows and columns; topics between random brokers."""
    rng = np.random.default_rng(seed)
    places = [(float(c), float(r)) for r in range(rows) for c in range(columns)]
    edges = [
        (r * columns + c, r * columns + c + step)
        for r in range(rows)
        for c in range(columns)
        for step, fits in ((1, c + 1 < columns), (columns, r + 1 < rows))
        if fits
    ]
    how: dict[str, Any] = {"topics": topics, "fan_out": fan_out, "tightness": tightness}
    return federation(f"grid-{rows}x{columns}-{seed}", places, edges, rng=rng, **how)


def geometric(
    nodes: int, *, topics: int, fan_out: int, seed: int, tightness: float = 0.9
) -> Instance:
    """Points in a square, each linked with its ``NEAR`` nearest; parts are joined."""
    rng = np.random.default_rng(seed)
    places = rng.random((nodes, 2))
    tree = cKDTree(places)
    _, nearest = tree.query(places, k=min(NEAR + 1, nodes))
    edges = {(min(a, int(b)), max(a, int(b))) for a in range(nodes) for b in nearest[a][1:]}
    _join_parts(places, edges)
    where = [(float(x), float(y)) for x, y in places]
    how: dict[str, Any] = {"topics": topics, "fan_out": fan_out, "tightness": tightness}
    return federation(f"geometric-{nodes}-{seed}", where, sorted(edges), rng=rng, **how)


def _join_parts(places: FloatArray, edges: set[tuple[int, int]]) -> None:
    """Link the smallest part to the nearest node outside it until there is one part."""
    while True:
        ends = tuple(np.array(sorted(edges)).T)
        linked = csr_matrix((np.ones(len(edges)), ends), shape=(len(places), len(places)))
        count, part = connected_components(linked, directed=False)
        if count == 1:
            return
        smallest = np.bincount(part).argmin()
        inside, outside = np.flatnonzero(part == smallest), np.flatnonzero(part != smallest)
        distance, place = cKDTree(places[outside]).query(places[inside])
        best = int(np.argmin(distance))
        a, b = int(inside[best]), int(outside[place[best]])
        edges.add((min(a, b), max(a, b)))


def federation(
    name: str,
    places: list[tuple[float, float]],
    edges: list[tuple[int, int]],
    *,
    topics: int,
    fan_out: int,
    rng: Generator,
    tightness: float,
    costs: list[float] | None = None,
) -> Instance:
    """Brokers that publish and subscribe themselves; costs are 1 to ``COST_MAX`` if not given."""
    count = len(places)
    fan_out = min(fan_out, count - 1)
    nodes = [NodeEntry(f"b{i}", x=x, y=y) for i, (x, y) in enumerate(places)]
    if costs is None:
        costs = [float(cost) for cost in rng.integers(1, COST_MAX + 1, len(edges))]
    ends = zip(edges, costs, strict=True)
    links = [LinkEntry(f"b{a}", f"b{b}", 1.0, cost=cost) for (a, b), cost in ends]
    entries = []
    for topic in range(topics):
        chosen = rng.choice(count, size=1 + int(rng.integers(1, fan_out + 1)), replace=False)
        publisher, *subscribers = (f"b{node}" for node in chosen)
        rate = float(rng.integers(1, RATE_MAX + 1))
        entries.append(TopicEntry(f"t{topic}", rate, publisher, subscribers))
    file = InstanceFile(VERSION, "edge", nodes, links, entries, name=name)
    return tighten(file, tightness=tightness)


def real_network(
    name: str, *, topics: int, fan_out: int, seed: int, tightness: float = 0.9
) -> Instance:
    """The network ``name``, as ``topozoo/Geant2012``. Raises ``InstanceError``: there is none."""
    graph = _graph(name)
    number = {node["id"]: i for i, node in enumerate(graph["nodes"])}
    places = [(float(node["pos"][0]), -float(node["pos"][1])) for node in graph["nodes"]]
    costs: dict[tuple[int, int], float] = {}
    for edge in graph["edges"]:
        a, b = sorted((number[edge["source"]], number[edge["target"]]))
        if a != b:
            costs[a, b] = float(max(1, math.ceil(float(edge["dist"]) / KM_PER_COST)))
    return federation(
        f"{name}-{seed}",
        places,
        sorted(costs),
        topics=topics,
        fan_out=fan_out,
        rng=np.random.default_rng(seed),
        tightness=tightness,
        costs=[costs[edge] for edge in sorted(costs)],
    )


def _graph(name: str) -> dict[str, Any]:
    """Read from the package's data: its own ``get`` leaves the file open."""
    wanted = "one of topohub's, such as sndlib/germany50, wanted"
    if not re.fullmatch(r"[a-z]+/[A-Za-z0-9_-]+", name):
        raise InstanceError(f"topology: {name!r}: {wanted}")
    try:
        text = files("topohub").joinpath("data", f"{name}.json").read_text(encoding="utf-8")
    except OSError:
        raise InstanceError(f"topology: {name!r}: {wanted}") from None
    graph: dict[str, Any] = json.loads(text)
    return graph


def tighten(file: InstanceFile, *, tightness: float) -> Instance:
    """Give each link between brokers ``tightness`` of what shortest paths would put on it.

    A link that shortest paths leave idle gets the mean of the others, so there is a way around; a
    client's link carries whatever the client may ask of it.
    """
    for link in file.links:
        link.capacity = 1e9
    load = shortest_path_load(build(file))
    clients = {node.name for node in file.nodes if node.role != "broker"}
    narrow = [not {link.a, link.b} & clients for link in file.links]
    busy = load[(load > 0) & narrow]
    mean = float(busy.mean()) if busy.size else 0.0
    heaviest = max(topic.rate for topic in file.topics)
    everything = sum(topic.rate for topic in file.topics)
    for position, link in enumerate(file.links):
        if not narrow[position]:
            link.capacity = everything
            continue
        aimed = load[position] * tightness if load[position] > 0 else mean
        link.capacity = float(math.ceil(max(aimed, heaviest)))
    return widen(build(file), np.random.default_rng(len(file.links)))


def widen(instance: Instance, rng: Generator) -> Instance:
    bench = Workbench(instance)
    added = np.zeros_like(instance.capacity)
    for topic in rng.permutation(instance.topics).tolist():
        bench.insert(topic)
        if bench.cost[topic] < instance.unmet_penalty:
            continue
        bench.remove(topic)
        full = ~bench.open_arcs(topic)
        surcharge = np.where(full, DETOUR_RATHER_THAN_WIDEN * COST_MAX, 0.0)
        bench.put(topic, *bench.best_tree(topic, bench.usable[topic], surcharge))
        lacking = np.maximum(0.0, -bench.room)
        added += lacking
        bench.room += lacking
    return replace(instance, capacity=instance.capacity + added)


def shortest_path_load(instance: Instance) -> FloatArray:
    """What each channel would carry if nothing were limited, shape (E,)."""
    paths = ShortestPaths(instance)
    load = np.zeros(len(instance.capacity))
    for topic in range(instance.topics):
        lengths = np.where(instance.usable(topic), instance.cost, np.inf)
        trees = paths.trees(lengths[None, :], instance.publisher[topic : topic + 1])
        targets = instance.request_node[instance.requests_of(topic)]
        _, arcs = paths.walk(trees, np.zeros(len(targets), dtype=np.intp), targets)
        np.add.at(load, instance.channel[np.unique(arcs)], instance.rate[topic])
    return load
