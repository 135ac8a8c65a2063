"""An answer: for each topic, the arcs that carry it; and its cost, counted from scratch.

The arcs of a topic form a tree from its publisher: each node is fed by one arc at most, so no flow
is split and merged again. Feasibility and cost are computed here from the arcs alone and never
taken from a solver.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from federator.planner.flow.instance import TOLERANCE, BoolArray, FloatArray, Instance, IntArray


class InfeasibleRoutingError(AssertionError):
    """Our solver returned an invalid answer."""


@dataclass(frozen=True, slots=True, eq=False)
class Routing:
    """An answer."""

    arcs: tuple[IntArray, ...]  # arcs that carry each topic, ascending, length K


@dataclass(frozen=True, slots=True, eq=False)
class Account:
    """The effects and costs of a routing."""

    met: BoolArray  # whether each request is served, shape (R,)
    path_cost: float  # the paper's (1): an arc is paid once per request that is served through it
    arc_cost: float  # the paper's (22): an arc is paid once per topic
    load: FloatArray  # what each channel carries, shape (E,)
    unmet_cost: float  # penalties of the requests that are not served

    @property
    def cost(self) -> float:
        """The objective of F1: paths and penalties."""
        return self.path_cost + self.unmet_cost

    @property
    def tree_cost(self) -> float:
        """The objective of F2: arcs and penalties."""
        return self.arc_cost + self.unmet_cost


def empty(instance: Instance) -> Routing:
    """The routing that carries nothing, which is always feasible."""
    return Routing(tuple(np.empty(0, dtype=np.intp) for _ in range(instance.topics)))


def account(instance: Instance, routing: Routing, *, overloads: bool = False) -> Account:
    """Follow every request back to its publisher, and count.

    Raises ``InfeasibleRoutingError``: an arc may not be used, a node is fed twice, or a channel
    carries more than its capacity, unless ``overloads`` are allowed.
    """
    met = np.zeros(instance.requests, dtype=bool)
    load = np.zeros(len(instance.capacity))
    path_cost = arc_cost = 0.0
    for topic, arcs in enumerate(routing.arcs):
        if not len(arcs):
            continue
        if not instance.usable(topic)[arcs].all():
            raise InfeasibleRoutingError(f"topic {topic} uses an arc that it may not use")
        if len(np.unique(instance.head[arcs])) != len(arcs):
            raise InfeasibleRoutingError(f"topic {topic} feeds a node twice")
        np.add.at(load, instance.channel[arcs], instance.rate[topic])
        arc_cost += float(instance.cost[arcs].sum())
        first = int(instance.first_request[topic])
        for request, path in enumerate(paths_of(instance, topic, arcs), start=first):
            met[request] = path is not None
            path_cost += sum(instance.cost[path or []].tolist())
    over = np.flatnonzero(load > instance.capacity + TOLERANCE * np.maximum(1, instance.capacity))
    if over.size and not overloads:
        raise InfeasibleRoutingError(f"channels {over[:5].tolist()} carry more than they can")
    unmet_cost = float((~met).sum() * instance.unmet_penalty)
    return Account(met, path_cost, arc_cost, load, unmet_cost)


def paths_of(instance: Instance, topic: int, arcs: IntArray) -> list[list[int] | None]:
    """The path of ``arcs`` to each subscriber of ``topic``, last arc first; None without one."""
    feeds = dict(zip(instance.head[arcs].tolist(), arcs.tolist(), strict=True))
    subscribers = instance.request_node[instance.requests_of(topic)].tolist()
    return [_path(instance, feeds, topic, node) for node in subscribers]


def _path(instance: Instance, feeds: dict[int, int], topic: int, node: int) -> list[int] | None:
    """The arcs that lead to ``node``, last first; None if they do not begin at the publisher."""
    source = int(instance.publisher[topic])
    path: list[int] = []
    while node != source:
        if node not in feeds or len(path) == len(feeds):
            return None
        path.append(feeds[node])
        node = int(instance.tail[feeds[node]])
    return path


def prune(instance: Instance, routing: Routing) -> Routing:
    """``routing`` without arcs that lead to no subscriber of their topic."""
    kept: list[set[int]] = []
    for topic, arcs in enumerate(routing.arcs):
        kept.append({arc for path in paths_of(instance, topic, arcs) for arc in path or ()})
    return from_arcs([sorted(topic_arcs) for topic_arcs in kept])


def from_arcs(arcs: Sequence[Sequence[int] | IntArray]) -> Routing:
    """A routing from lists of arcs, one per topic."""
    return Routing(tuple(np.sort(np.asarray(topic_arcs, dtype=np.intp)) for topic_arcs in arcs))
