"""Where more is wanted than links can carry: what is proven of that, and what exact makes of it."""

from dataclasses import replace

import numpy as np
import pytest

from federator.planner.flow import exact
from federator.planner.flow.shortest_paths import ShortestPaths
from federator.planner.flow.watch import UNWATCHED, Watch
from federator.planner.lagrangian import heuristic as lagrangian
from federator.planner.lagrangian.shortage import unmet_least
from federator.planner.methods import solve_by_arcs, solve_exactly, solve_greedily
from lab.papers.flow import generators
from tests.planner.flow.brute_force import optimum, tiny


def crowded(nodes, topics, share, *, seed):
    instance = generators.geometric(nodes, topics=topics, fan_out=3, seed=seed)
    return replace(instance, capacity=np.floor(share * instance.capacity))


def least(instance, most):
    return unmet_least(instance, ShortestPaths(instance), most=most, watch=UNWATCHED)


def test_no_more_is_said_to_be_left_out_than_must_be():
    exactly = 0

    for seed in range(50):
        instance = tiny(seed)
        free = np.zeros(instance.arcs)
        must = optimum(replace(instance, cost=free, unmet_penalty=1.0))
        proven = least(instance, instance.requests)
        assert proven <= must, seed
        exactly += proven == must

    assert exactly >= 48


@pytest.mark.parametrize(("seed", "unmet"), [(0, 4), (1, 7), (2, 1)])
def test_a_bound_counts_the_requests_that_must_be_left_out(seed, unmet):
    instance = crowded(14, 12, 0.6, seed=seed)

    outcome = lagrangian.solve(instance, effort=replace(lagrangian.SMALL, combinations=0))

    assert outcome.lower_bound > unmet * instance.unmet_penalty  # 381 for 3322 without
    assert outcome.lower_bound <= outcome.cost


@pytest.mark.parametrize("solve", [exact.solve_f1, exact.solve_f2])
def test_highs_sets_out_from_what_it_is_given(solve):
    instance = crowded(25, 20, 0.7, seed=4)
    at_once = Watch(interrupted=lambda: True)
    start = solve_greedily(instance)
    cost = start.cost if solve is exact.solve_f1 else start.account.tree_cost

    assert solve(instance, watch=at_once).cost > cost
    assert solve(instance, start=start.routing, watch=at_once).cost <= cost


@pytest.mark.parametrize("solve", [solve_exactly, solve_by_arcs])
def test_a_start_changes_no_optimum(solve):
    instance = generators.table1(generators.TABLE_1[1], seed=1)
    alone = exact.solve_f1 if solve is solve_exactly else exact.solve_f2

    outcome = solve(instance)

    assert outcome.proven
    assert outcome.cost == pytest.approx(alone(instance).cost)


def test_exact_that_is_stopped_is_no_worse_than_the_lagrangian_and_proves_no_less():
    instance = crowded(14, 12, 0.6, seed=2)
    quick = lagrangian.solve(instance, watch=stopped_after(3_000))

    outcome = solve_exactly(instance, watch=stopped_after(3_020))

    assert outcome.cost <= quick.cost
    assert outcome.lower_bound >= quick.lower_bound > instance.unmet_penalty
    assert outcome.method == "exact"


@pytest.mark.parametrize("full", [slice(0, 3), slice(None)])
def test_links_on_which_nothing_is_left_are_no_way(full):
    """As a steerer finds them, whose instance is what other traffic leaves."""
    instance = tiny(1)
    instance.capacity[full] = 0.0

    outcome = solve_exactly(instance)

    assert outcome.proven
    assert outcome.cost == pytest.approx(optimum(instance))


def stopped_after(looks):
    """A watch that ends after so many looks at it."""
    seen = iter(range(looks))
    return Watch(interrupted=lambda: next(seen, None) is None)
