"""The bound by tolls of each request: where it is stronger, and what corridors leave out."""

from itertools import islice

import numpy as np
import pytest

from federator.planner.flow import exact
from federator.planner.flow.instance_file import (
    InstanceFile,
    LinkEntry,
    NodeEntry,
    TopicEntry,
    build,
)
from federator.planner.flow.shortest_paths import ShortestPaths
from federator.planner.flow.watch import UNWATCHED
from federator.planner.lagrangian import heuristic as lagrangian
from federator.planner.lagrangian.request_tolls import Corridors, RequestTolls
from lab.papers.flow import generators


def bound(instance, rounds):
    tolls = RequestTolls(instance, ShortestPaths(instance))
    return list(islice(tolls.improve(UNWATCHED), rounds))[-1]


def test_a_link_with_room_for_nine_of_ten_units_turns_away_a_whole_topic():
    links = [
        LinkEntry("a", "b", 9.0, cost=1.0),
        LinkEntry("a", "c", 10.0, cost=2.0),
        LinkEntry("c", "b", 10.0, cost=2.0),
    ]
    topics = [TopicEntry(f"t{k}", 5.0, "a", ["b"]) for k in range(2)]
    instance = build(InstanceFile(1, "edge", [NodeEntry(n) for n in "abc"], links, topics))

    raised = bound(instance, 200)

    assert exact.solve_f1(instance).cost == 5
    assert raised == pytest.approx(5, abs=0.1)  # a price per unit proves 2.6


def test_it_proves_more_than_equal_shares_and_never_more_than_the_optimum():
    instance = generators.geometric(14, topics=10, fan_out=2, seed=3, tightness=0.7)
    solved = exact.solve_f1(instance)

    raised = bound(instance, 150)

    shortest = Corridors(instance, ShortestPaths(instance), UNWATCHED).shortest.sum()
    equal = lagrangian.solve(instance, effort=lagrangian.LARGE).lower_bound
    assert solved.proven
    assert shortest < raised <= solved.cost + 1e-6
    assert raised > equal + 0.3 * (solved.cost - equal)


def test_corridors_bound_the_shortest_ways_at_any_tolls():
    rng = np.random.default_rng(8)
    instance = generators.geometric(80, topics=6, fan_out=4, seed=8)
    paths = ShortestPaths(instance)
    corridors = Corridors(instance, paths, UNWATCHED)
    for most in (0.5, 3.0, 20.0):
        toll = rng.uniform(0, most, instance.arcs)

        walks = corridors.walk((instance.cost + toll)[corridors.arc])

        lengths = np.broadcast_to(instance.cost + toll, (instance.topics, instance.arcs))
        true = paths.trees(lengths, instance.publisher).distance
        asked = true[instance.request_topic, instance.request_node]
        assert (walks.value <= asked + 1e-9).all()
        inside = np.bincount(walks.walker, minlength=instance.requests) > 0
        assert inside.any()
        assert walks.value[inside] == pytest.approx(asked[inside])
