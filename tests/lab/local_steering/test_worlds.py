"""Local steering on the product's own nodes: loads, noise, bursts, faults."""

import pytest

from federator.planner.steering.fitting import FILL_MAX
from federator.protocol import data_plane
from lab.local_steering.board import Network
from lab.local_steering.demand import (
    CAPACITY,
    draw,
    exact,
    greedy,
    loads_of,
    network_of,
    ordinary_ways,
)
from lab.local_steering.faulty import run_mixture
from lab.local_steering.trial import CLOSE, burst, cost_of, fullest, most_within, shift, ways_of
from lab.local_steering.words import PricedLink
from lab.local_steering.world import LoadedWorld

BROKERS = 8
MIXTURES = (12, 3, 4)


@pytest.mark.parametrize("steerer", ["none", "local", "central"])
def test_a_demand_that_fits_but_overloads_a_link_is_parted_by_who_steers(steerer):
    demand = draw(1, BROKERS)
    world = LoadedWorld(demand, steerer)

    world.pass_time(60)

    fits = fullest(demand, ways_of(world)) <= FILL_MAX + CLOSE
    assert fits is (steerer != "none")
    assert bool(world.moves) is (steerer != "none")
    assert (0 < world.steering_bytes() < 0.01 * world.data_bytes()) is (steerer != "none")
    if fits:
        assert cost_of(demand, ways_of(world)) <= 1.05 * exact(demand).cost


def test_what_crosses_the_wires_is_what_ways_and_rates_say():
    demand = draw(2, BROKERS)
    world = LoadedWorld(demand, "local")
    world.pass_time(100)
    assert world.trees()

    meant = loads_of(demand, ways_of(world))

    carried = world.fill()
    for ends, load in meant.items():  # labels of frames are the rest
        assert carried[ends] == pytest.approx(load / CAPACITY, rel=0.02, abs=0.001)


def test_a_burst_of_two_seconds_moves_nothing_and_a_lasting_shift_does():
    assert burst(1, BROKERS, "local", times=1) == 0
    assert shift(1, BROKERS, "local")[0] <= 30


@pytest.mark.parametrize("seed", [4, 12])
def test_the_central_steerer_follows_a_shift_by_one_decision(seed):
    over_s, over_95_s = shift(seed, 8 + seed % 5, "central")
    assert over_s <= over_95_s <= 30


def test_in_every_mixture_each_publication_comes_once():
    results = [run_mixture(seed) for seed in MIXTURES]

    assert [each.violation for each in results] == [None] * len(MIXTURES)
    for what in ("local move", "planned frame", "tree torn"):
        assert all(each.fired.get(what) for each in results), what


def test_a_tree_that_nobody_rescues_from_is_found(monkeypatch):
    monkeypatch.setattr(data_plane, "rescued", lambda frame, route, *others: route)

    assert run_mixture(MIXTURES[0]).violation.invariant == "mixed_plans_reach_each_once"


@pytest.mark.parametrize("seed", range(3))
def test_origins_know_the_ordinary_ways_as_the_planner_does(seed):
    demand = draw(seed, BROKERS)
    ours = Network({(a, b): PricedLink(b, cost, 0, 1, 0) for (a, b), cost in demand.costs.items()})

    ways = {flow: ours.ordinary(flow[0], to) for flow, (to, _) in demand.flows.items()}

    assert ways == ordinary_ways(demand, network_of(demand))


def test_demands_fit_and_the_exact_answer_is_no_dearer_than_the_greedy_one():
    demand = draw(3, BROKERS)

    assert exact(demand).lower_bound <= exact(demand).cost <= greedy(demand).cost
    assert greedy(demand).unmet == 0


def test_moves_of_one_flow_are_counted_within_any_five_minutes():
    a, b = (1, "a"), (1, "b")
    moves = [(100.0, a), (399.0, a), (401.0, a), (120.0, b)]

    assert most_within(moves, 300.0) == 2
    assert most_within([], 300.0) == 0
