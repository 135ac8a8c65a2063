"""Links too narrow for what brokers want: around them, or not at all, and never too much."""

from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from federator.planner.flow.instance_file import (
    InstanceFile,
    LinkEntry,
    NodeEntry,
    TopicEntry,
    build,
)
from federator.planner.flow.routing import account, from_arcs
from federator.planner.flow.watch import UNWATCHED, Watch
from federator.planner.lagrangian import heuristic as lagrangian
from lab.papers.flow import generators
from lab.papers.pricing.admission import admit, refuse
from lab.papers.pricing.world import Conditions, World, solve
from tests.planner.flow.brute_force import optimum, tiny


def line(*rates, capacity):
    """A topic of each rate from a over b to c; the second link has ``capacity``, the first room."""
    nodes = [NodeEntry(name) for name in "abc"]
    links = [LinkEntry("a", "b", 99.0), LinkEntry("b", "c", capacity)]
    topics = [TopicEntry(f"t{k}", rate, "a", ["b", "c"]) for k, rate in enumerate(rates)]
    return build(InstanceFile(1, "edge", nodes, links, topics, unmet_penalty=50.0))


def arc(instance, tail, head):
    ends = zip(instance.tail.tolist(), instance.head.tolist(), strict=True)
    return list(ends).index((instance.names.index(tail), instance.names.index(head)))


def test_a_link_narrower_than_a_topic_is_gone_around():
    nodes = [NodeEntry(name) for name in "abc"]
    links = [
        LinkEntry("a", "b", 1.0, cost=1.0),
        LinkEntry("a", "c", 5.0, cost=2.0),
        LinkEntry("c", "b", 5.0, cost=2.0),
    ]
    topics = [TopicEntry("t", 2.0, "a", ["b"])]

    outcome = solve(build(InstanceFile(1, "edge", nodes, links, topics)))

    assert (outcome.cost, outcome.unmet) == (4.0, 0)


@pytest.mark.parametrize("seed", range(12))
def test_where_links_are_narrow_and_penalties_small_brokers_end_at_the_optimum(seed):
    instance = tiny(seed)

    outcome = solve(instance)

    assert outcome.cost == pytest.approx(optimum(instance))


def test_a_request_that_is_not_worth_its_way_is_left_out_by_the_brokers_themselves():
    instance = replace(line(1.0, capacity=9.0), unmet_penalty=1.5)
    world = World(instance, Conditions(rounds=8), seed=0)

    world.run(UNWATCHED)

    assert world.records[-1].unmet == 1  # c's: its way costs 2
    assert world.brokers[instance.names.index("c")].topics[0].dear


def test_a_request_comes_back_when_its_way_is_worth_it_again():
    instance = line(3.0, 3.0, capacity=4.0)
    world = World(instance, Conditions(rounds=90), seed=0)
    world.run(UNWATCHED)
    assert world.records[-1].unmet == 1

    world.change(replace(instance, rate=np.array([2.0, 2.0])))
    world.run(UNWATCHED)

    assert world.records[-1].unmet == 0


def test_with_more_wanted_than_links_can_carry_no_more_is_left_out_than_must_be():
    instance = generators.geometric(14, topics=12, fan_out=3, seed=0)
    instance = replace(instance, capacity=np.floor(0.6 * instance.capacity))

    outcome = solve(instance)

    assert outcome.unmet == lagrangian.solve(instance).unmet == 4


def test_a_link_refuses_a_branch_and_what_serves_few_for_its_rate_first():
    instance = line(3.0, 2.0, 2.0, capacity=4.0)
    both = [arc(instance, "a", "b"), arc(instance, "b", "c")]

    kept = refuse(instance, from_arcs([both, both, both]))

    assert [each.tolist() for each in kept.arcs] == [[both[0]], sorted(both), sorted(both)]


def test_what_was_refused_comes_over_links_that_have_room():
    instance = generators.geometric(30, topics=20, fan_out=3, seed=1)
    alone = [instance.usable(k) for k in range(instance.topics)]
    crowded = lagrangian.solve(replace(instance, capacity=np.full_like(instance.capacity, 1e6)))
    assert all(use[arcs].all() for use, arcs in zip(alone, crowded.routing.arcs, strict=True))

    refused = account(instance, refuse(instance, crowded.routing))
    admitted = account(instance, admit(instance, crowded.routing, UNWATCHED))

    assert (~refused.met).sum() > (~admitted.met).sum()
    assert admitted.cost < refused.cost


def test_time_is_looked_at_within_a_round_and_what_stands_then_fits():
    instance = generators.geometric(14, topics=12, fan_out=3, seed=0)
    looks = count()

    outcome = solve(instance, watch=Watch(seconds=lambda: next(looks), time_limit_s=200.0))

    assert outcome.stopped == "stopped"
    assert outcome.iterations == 0
    assert next(looks) < 250
