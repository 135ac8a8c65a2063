"""The same problem solved the stupid way, and small instances to solve so."""

from itertools import product
from typing import Literal

import numpy as np

from federator.planner.flow.instance import Instance
from federator.planner.flow.instance_file import (
    InstanceFile,
    LinkEntry,
    NodeEntry,
    TopicEntry,
    build,
)


def tiny(seed):
    """Four brokers, at most two topics with a publisher of their own, one from a broker."""
    rng = np.random.default_rng([seed, 7])
    brokers = [f"b{i}" for i in range(4)]
    pairs = [(a, b) for a in range(4) for b in range(a + 1, 4)]
    ring = [(0, 1), (1, 2), (2, 3), (0, 3)]
    chosen = (
        ring[: int(rng.integers(3, 5))] + [p for p in pairs if p not in ring][: rng.integers(3)]
    )
    links = [
        LinkEntry(f"b{a}", f"b{b}", float(rng.integers(1, 6)), cost=float(rng.integers(0, 9)))
        for a, b in chosen
    ]
    nodes = [NodeEntry(name) for name in brokers]
    topics = []
    for k in range(int(rng.integers(1, 4))):
        publisher = brokers[int(rng.integers(4))]
        if k < 2:
            nodes.append(NodeEntry(f"p{k}", role="publisher"))
            ends = rng.choice(4, size=int(rng.integers(1, 3)), replace=False)
            for end in ends:
                cost = float(rng.integers(0, 5))
                links.append(LinkEntry(f"p{k}", f"b{end}", 9.0, cost=cost, both=False))
            publisher = f"p{k}"
        others = [name for name in brokers if name != publisher]
        wanted = rng.choice(3, size=int(rng.integers(1, 4)), replace=False)
        rate = float(rng.integers(1, 4))
        topics.append(TopicEntry(f"t{k}", rate, publisher, [others[i] for i in sorted(wanted)]))
    penalty = None if rng.random() < 0.7 else float(rng.integers(5, 30))
    kind: Literal["edge", "arc"] = "edge" if rng.random() < 0.5 else "arc"
    return build(InstanceFile(1, kind, nodes, links, topics, unmet_penalty=penalty))


def optimum(instance: Instance, *, by_arcs: bool = False) -> float:
    """The least cost of all routings, each looked at."""
    answers = [_trees(instance, topic, by_arcs) for topic in range(instance.topics)]
    best = np.inf
    for combination in product(*answers):
        cost = sum(cost for _, cost in combination)
        if cost < best:
            load = sum((load for load, _ in combination), np.zeros(len(instance.capacity)))
            if (load <= instance.capacity + 1e-9).all():
                best = cost
    return best


def _trees(instance, topic, by_arcs):
    """(load, cost) of every tree of ``topic``; of those with equal loads the cheapest."""
    wanted = instance.request_node[instance.requests_of(topic)].tolist()
    found: dict[bytes, tuple[np.ndarray, float]] = {}
    for paths in product(*[[None, *_paths(instance, topic, node)] for node in wanted]):
        arcs = set().union(*[path for path in paths if path is not None])
        heads = [int(instance.head[arc]) for arc in arcs]
        if len(set(heads)) < len(heads):
            continue
        unmet = sum(path is None for path in paths) * instance.unmet_penalty
        counted = list(arcs) if by_arcs else [a for path in paths for a in path or ()]
        cost = float(instance.cost[counted].sum()) + unmet
        load = np.bincount(instance.channel[list(arcs)], minlength=len(instance.capacity)) * float(
            instance.rate[topic]
        )
        if by_arcs and not _one_start(instance, topic, arcs):
            continue
        key = load.tobytes()
        if key not in found or cost < found[key][1]:
            found[key] = (load, cost)
    return sorted(found.values(), key=lambda each: each[1])


def _one_start(instance, topic, arcs):
    """Whether a publisher that is no broker sends once at most, (23)."""
    source = instance.publisher[topic]
    return instance.relays[source] or sum(instance.tail[a] == source for a in arcs) <= 1


def _paths(instance, topic, target):
    """All ways without a circle, as tuples of arcs."""
    usable = np.flatnonzero(instance.usable(topic)).tolist()
    paths = []

    def extend(node, path, seen):
        if node == target:
            paths.append(tuple(path))
            return
        for arc in usable:
            head = int(instance.head[arc])
            if instance.tail[arc] == node and head not in seen:
                extend(head, [*path, arc], seen | {head})

    source = int(instance.publisher[topic])
    extend(source, [], {source})
    return paths
