"""Orders of brokers as cores, against all permutations."""

from itertools import permutations

import numpy as np
import pytest

from federator.planner.delegation.live import Broker
from federator.planner.placement.cores import PlacementError, cost_of, meshes, order, place_cores

LINE = [(1, 2), (2, 3), (3, 4)]


def test_a_core_costs_the_way_of_publications_to_it_and_from_it_to_every_member():
    brokers = [
        Broker(1, {}, {"t": 1}),
        Broker(2, {}, {}),
        Broker(3, {"t": 2.0}, {}),
        Broker(4, {}, {"t": 5}),
    ]

    found = meshes(brokers, LINE)

    assert found.costs.tolist() == [[2.0 * (2 + 3), np.inf, np.inf, 2.0 * (1 + 3)]]


def test_the_core_goes_where_its_traffic_is():
    brokers = [Broker(1, {}, {"t": 1}), Broker(2, {}, {}), Broker(3, {}, {"t": 1})]
    brokers.append(Broker(4, {"t": 1.0}, {"t": 1}))

    plan = place_cores(brokers, LINE)

    assert min((1, 3, 4), key=plan.priorities.__getitem__) in (3, 4)
    assert plan.cost == plan.lower_bound < plan.smallest_id_cost
    assert sorted(plan.priorities.values()) == [-4, -3, -2, -1]


@pytest.mark.parametrize("seed", range(30))
def test_orders_are_as_good_as_the_best_permutation(seed):
    rng = np.random.default_rng(seed)
    costs = rng.uniform(1, 100, (6, 5))
    costs[rng.random(costs.shape) < 0.4] = np.inf
    costs = costs[np.isfinite(costs).any(axis=1)]

    found = cost_of(costs, order(costs))

    best = min(cost_of(costs, np.array(each)) for each in permutations(range(5)))
    assert costs.min(axis=1).sum() <= best <= found <= 1.001 * best


def test_brokers_without_a_way_between_them_are_told():
    with pytest.raises(PlacementError, match="no way leads from broker 1 to"):
        place_cores([Broker(1, {}, {}), Broker(2, {}, {})], [])
    with pytest.raises(PlacementError, match="link 1-7"):
        place_cores([Broker(1, {}, {})], [(1, 7)])
