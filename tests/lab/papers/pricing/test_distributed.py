"""Brokers that price their own links, in a world with delays and losses."""

from dataclasses import replace

import numpy as np
import pytest

from federator.planner.flow.watch import UNWATCHED
from federator.planner.lagrangian import heuristic as lagrangian
from lab.papers.flow import generators
from lab.papers.flow.studies import CENTRAL, LATE_ROUNDS
from lab.papers.pricing.broker import Broker
from lab.papers.pricing.world import Conditions, World, solve


@pytest.mark.full
def test_brokers_come_to_rest_near_the_centralised_answer():
    instance = generators.geometric(50, topics=40, fan_out=4, seed=3)
    central = lagrangian.solve(instance, effort=CENTRAL)
    world = World(instance, Conditions(rounds=100 + LATE_ROUNDS), seed=3)

    world.run(UNWATCHED)

    late = world.records[100:]
    assert len(late) == LATE_ROUNDS
    assert world.lost > 0.01 * world.messages
    assert world.records[99].cost <= 1.05 * central.cost  # 1.12 when places are not sold
    assert {(record.moves, record.unmet) for record in late} == {(0, 0)}
    assert max(record.overload for record in late) < 1e-6


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_a_small_world_does_not_oscillate(noise):
    instance = generators.geometric(14, topics=12, fan_out=3, seed=0)
    world = World(instance, Conditions(rounds=100 + LATE_ROUNDS, noise=noise), seed=0)

    world.run(UNWATCHED)

    early, late = world.records[:60], world.records[100:]
    assert sum(record.moves for record in early) > 10
    assert max(record.overload for record in early) > 0.1
    assert {(record.moves, record.unmet) for record in late} == {(0, 0)}
    assert max(record.overload for record in late) < 1e-6
    assert late[-1].cost <= 1.05 * lagrangian.solve(instance).cost


def test_a_lasting_change_of_demand_starts_prices_anew_and_comes_to_rest_again():
    before = generators.geometric(14, topics=12, fan_out=3, seed=0)
    after = replace(before, rate=before.rate[::-1].copy())
    widened = generators.widen(after, np.random.default_rng(0)).capacity
    before, after = replace(before, capacity=widened), replace(after, capacity=widened)
    world = World(before, Conditions(rounds=100, noise=0.1), seed=0)
    world.run(UNWATCHED)
    assert {broker.began for broker in world.brokers} == {0}
    assert sum(record.moves for record in world.records[80:]) == 0

    world.change(after)
    world.run(UNWATCHED)

    begun = {broker.began for broker in world.brokers}
    late = world.records[-LATE_ROUNDS:]
    assert len(begun) == 1
    assert 100 <= min(begun) <= 110
    assert sum(record.moves for record in world.records[100:160]) > 0
    assert {(record.moves, record.unmet) for record in late} == {(0, 0)}
    assert max(record.overload for record in late) < 1e-6
    assert late[-1].cost <= 1.05 * lagrangian.solve(after).cost


def test_a_new_subscriber_is_a_change_of_demand_but_no_more_than_once_in_a_while():
    broker = Broker(id=0)
    began = []
    for round_ in range(1, 100):
        broker.subscribe({round_})
        broker.begin_round(round_)
        began.append(broker.began)

    assert sorted({each for each in began if each}) == [30, 60, 90]


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
