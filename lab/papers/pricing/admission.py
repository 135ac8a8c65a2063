"""What links let through in the end, when brokers' time is over and some links are still too full.

The owner of a link that is too full refuses topics on it until the others fit, those first whose
refusal leaves fewest requests unmet for the room that it makes. Then topics take turns once more:
each looks for its best ways over links that have room, until nobody gains. So what is refused on
one link may come over others, and a request that costs more than it is worth stays unmet.
"""

from collections import Counter

import numpy as np

from federator.planner.flow.instance import TOLERANCE, Instance, IntArray
from federator.planner.flow.routing import Routing, from_arcs, paths_of
from federator.planner.flow.watch import Watch
from federator.planner.flow.workbench import Workbench

TURNS_MAX = 20  # of each topic


def admit(instance: Instance, routing: Routing, watch: Watch) -> Routing:
    """The part of ``routing`` that fits, and what finds room beside it before time is over."""
    bench = Workbench(instance)
    for topic, arcs in enumerate(refuse(instance, routing).arcs):
        paths = paths_of(instance, topic, arcs)
        paid = sum(float(instance.cost[path or []].sum()) for path in paths)
        bench.put(topic, arcs, paid + paths.count(None) * instance.unmet_penalty)
    for _ in range(TURNS_MAX):
        gained = False
        for topic in range(instance.topics):
            if watch.over():
                return bench.routing()
            gained |= bench.respond(topic)
        if not gained:
            break
    return bench.routing()


def refuse(instance: Instance, routing: Routing) -> Routing:
    """``routing`` without the branches for which links have no room."""
    served = [_served(instance, topic, arcs) for topic, arcs in enumerate(routing.arcs)]
    load = np.zeros(len(instance.capacity))
    for topic, arcs in enumerate(served):
        np.add.at(load, instance.channel[list(arcs)], instance.rate[topic])
    for channel in np.flatnonzero(load > instance.capacity + TOLERANCE).tolist():
        carried = [
            (requests / float(instance.rate[topic]), topic, arc)
            for topic, arcs in enumerate(served)
            for arc, requests in arcs.items()
            if instance.channel[arc] == channel
        ]
        lacking = sum(float(instance.rate[topic]) for _, topic, _ in carried)
        lacking -= float(instance.capacity[channel])
        for _, topic, arc in sorted(carried):
            if lacking <= TOLERANCE:
                break
            lacking -= float(instance.rate[topic])
            left = np.array([each for each in served[topic] if each != arc], dtype=np.intp)
            served[topic] = _served(instance, topic, left)
    return from_arcs([sorted(arcs) for arcs in served])


def _served(instance: Instance, topic: int, arcs: IntArray) -> Counter[int]:
    """How many requests of ``topic`` each of ``arcs`` serves; arcs that serve none are left out."""
    return Counter(arc for path in paths_of(instance, topic, arcs) for arc in path or ())
