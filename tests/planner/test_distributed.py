"""Brokers that price their own links, in a world with delays and losses."""

import random
from itertools import pairwise
from statistics import fmean

import pytest

from federator.planner import generators, lagrangian
from federator.planner.distributed.broker import Broker
from federator.planner.distributed.world import SLACK_OF_NOISE, Conditions, World, solve
from federator.planner.studies import CENTRAL
from federator.planner.watch import UNWATCHED


@pytest.mark.slow
def test_brokers_come_to_rest_near_the_centralised_answer():
    instance = generators.geometric(50, topics=40, fan_out=4, seed=3)
    central = lagrangian.solve(instance, effort=CENTRAL)
    world = World(instance, Conditions(), seed=3)

    world.run(UNWATCHED)

    late = world.records[-20:]
    assert len(world.records) == 100
    assert world.lost > 0.01 * world.messages
    assert late[-1].unmet == 0
    assert late[-1].overload == 0
    assert late[-1].cost <= 1.05 * central.cost  # 1.12 when places are not sold
    assert sum(record.moves for record in late) <= 5
    assert all(abs(a.cost - b.cost) <= 0.02 * a.cost for a, b in pairwise(late))


def test_what_averaging_leaves_of_noise_is_within_the_slack_of_links():
    rng = random.Random(7)
    broker = Broker(id=0)
    known = []

    for _ in range(400):
        broker.measure(3, 4.0 * (1 + rng.uniform(-0.1, 0.1)))
        known.append(broker.rates[3])

    off = [abs(rate / 4.0 - 1) for rate in known[20:]]
    assert fmean(off) < SLACK_OF_NOISE * 0.1 / 2
    assert max(off) < 2 * SLACK_OF_NOISE * 0.1


def test_the_same_seed_gives_the_same_world():
    instance = generators.grid(3, 3, topics=5, fan_out=3, seed=1)
    first, again = (World(instance, Conditions(rounds=10, loss=0.1), seed=4) for _ in range(2))

    first.run(UNWATCHED)
    again.run(UNWATCHED)

    assert first.records == again.records
    assert (first.messages, first.lost) == (again.messages, again.lost)


def test_with_room_for_all_everybody_takes_the_shortest_way():
    instance = generators.grid(4, 4, topics=8, fan_out=3, seed=3, tightness=10)

    outcome = solve(instance, conditions=Conditions(rounds=8))

    assert outcome.cost == lagrangian.solve(instance).cost
    assert outcome.unmet == 0
