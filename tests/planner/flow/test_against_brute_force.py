"""Solvers against looking at everything."""

import pytest

from federator.planner.flow import exact
from federator.planner.lagrangian import heuristic as lagrangian
from federator.planner.lagrangian import steps
from federator.planner.methods import solve_greedily
from lab.papers.flow import annealing, local_split
from tests.effort import seeds
from tests.planner.flow.brute_force import optimum, tiny

INSTANCES = seeds(1_000)
CHUNKS = seeds(10)
EXACT_SEEDS = range(seeds(150))


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.few(3)
def test_no_bound_of_the_relaxation_exceeds_the_optimum(chunk):
    reached = 0
    for seed in range(chunk * INSTANCES // CHUNKS, (chunk + 1) * INSTANCES // CHUNKS):
        instance = tiny(seed)
        best = optimum(instance)
        rule = steps.Rule.POLYAK if seed % 2 else steps.Rule.DOG

        outcome = lagrangian.solve(instance, rule=rule, seed=seed)

        assert outcome.lower_bound <= best + 1e-6 <= outcome.cost + 2e-6, seed
        reached += outcome.cost <= best + 1e-6
    assert reached >= 0.95 * INSTANCES / CHUNKS


@pytest.mark.parametrize("solve", [exact.solve_f1, exact.solve_f2])
def test_f1_and_f2_are_solved_to_the_optimum(solve):
    for seed in EXACT_SEEDS:
        instance = tiny(seed)

        outcome = solve(instance)

        best = optimum(instance, by_arcs=solve is exact.solve_f2)
        assert outcome.cost == pytest.approx(best), seed
        assert outcome.proven, seed


@pytest.mark.parametrize("solve", [solve_greedily, annealing.solve, local_split.solve])
def test_reference_methods_never_undercut_the_optimum_and_prove_nothing(solve):
    for seed in range(20):
        instance = tiny(seed)

        outcome = solve(instance)

        assert outcome.cost >= optimum(instance) - 1e-6, seed
        assert outcome.lower_bound == float("-inf")
