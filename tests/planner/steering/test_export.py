"""What a steerer measured, as ``federator plan`` reads it."""

import random

import pytest

from federator.planner.flow import instance_file
from federator.planner.methods import SOLVERS, Method
from federator.planner.steering.export import measured
from federator.planner.steering.fitting import FILL_MAX
from tests.planner.steering.world import random_world, square

SEEDS = (1, 2, 3, 4, 5, 6, 7, 9, 12, 13)
"""Demands that overload a link and fit otherwise."""


def exported(world):
    return measured(world.decider.measured(), world.decider.names())


def test_nothing_is_measured_before_anybody_told_anything():
    assert square().decider.measured() is None


def test_rates_and_links_are_those_of_the_federation():
    world = square(background={(1, 3): 30.0})
    world.run(seconds=4)

    found = instance_file.decode(instance_file.encode(exported(world).instance))
    links = {
        (found.names[a], found.names[b]): (cost, room)
        for a, b, cost, room in zip(
            found.tail, found.head, found.cost, found.capacity[found.channel], strict=True
        )
    }
    assert dict(zip(found.topic_names, found.rate, strict=True)) == {
        "a from 1": 0.05,
        "b from 1": 0.04,
        "c from 1": 0.03,
    }
    assert links["1", "3"] == (2.0, pytest.approx(0.095 - 0.03))  # its background is not ours
    assert links["1", "2"] == (1.0, pytest.approx(0.095))


def test_ways_are_counted_as_flows_go_before_a_move_and_after_it():
    world = square()
    world.run(seconds=4)
    before = exported(world)
    assert world.run(seconds=60).trees
    after = exported(world)

    assert (before.path_cost, before.overloaded) == (6.0, 2)
    assert (after.path_cost, after.overloaded) == (8.0, 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_exact_answer_to_the_file_is_within_five_percent_of_how_flows_go(seed):
    world = random_world(random.Random(seed), brokers=8, extra=10, flows=30)
    world.run(seconds=24)
    assert world.moves

    found = exported(world)
    exact = SOLVERS[Method.EXACT](
        instance_file.decode(instance_file.encode(found.instance)), seed=0
    )
    assert (found.overloaded, exact.unmet) == (0, 0)
    assert exact.cost - 1e-6 <= found.path_cost <= 1.05 * exact.cost
    assert world.fullest() <= FILL_MAX + 1e-6


def test_a_steerer_that_only_looks_sees_flows_go_by_the_trees_of_another():
    steered, looking = square(), square()
    steered.run(seconds=60)
    looking.trees = dict(steered.trees)  # followed by agents, and not planned by this one
    looking.tell()
    looking.decider.follow(steered.trees.values(), now_ms=looking.now_ms)
    decision = looking.decider.decide(now_ms=looking.now_ms)

    assert not decision.moves
    assert exported(looking).path_cost == exported(steered).path_cost
