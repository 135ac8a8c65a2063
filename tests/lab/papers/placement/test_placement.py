"""The placement model and every method, against brute force and against each other."""

from itertools import product

import numpy as np
import pytest

from lab.papers.placement.bound import lower_bound
from lab.papers.placement.exact import can_be_placed, cuts, solve_exactly
from lab.papers.placement.hops import PlacementError
from lab.papers.placement.instance import InfeasibleError, checked, load, power, traffic_hops
from lab.papers.placement.instances import Setting, draw
from lab.papers.placement.search import State, search
from lab.papers.placement.simple import place_greedily, place_randomly
from tests.effort import seeds
from tests.planner.flow.instances import brute_force, built, tiny

TINY = seeds(500)
SHARD = 100


def at(*devices):
    return np.array(devices, dtype=np.intp)


def test_the_corrected_formulas_give_what_a_pencil_gives():
    instance = built()

    # (5): 2 x (1 + 2 + 5); (6): 3 x 5 + 7 x 4
    assert instance.work.tolist() == [16.0, 43.0]
    # apart: topic clients 1 hop for 1 Mbps, users 0, shared 5
    assert traffic_hops(instance, at(1, 0)) == 1.0 + 0.0 + 5.0
    assert power(instance, at(1, 0)) == 2.0 * 16 + 1.0 * 43 + 3.0 * 6.0
    assert power(instance, at(0, 0)) == 1.0 * 59 + 3.0 * 2.0
    assert load(instance, at(1, 0)).tolist() == [43.0, 16.0]


def test_an_overloaded_device_is_no_placement():
    with pytest.raises(PlacementError, match=r"devices \[0\] carry more"):
        checked(built(capacity=np.array([50.0, 100.0])), at(0, 0), method="test")


def test_wrong_shapes_and_negative_values_are_refused():
    with pytest.raises(PlacementError, match=r"hops must have shape \(2, 2\), got \(3, 3\)"):
        built(hops=np.zeros((3, 3)))
    with pytest.raises(PlacementError, match="capacity must be finite and not negative"):
        built(capacity=np.array([-1.0, 5.0]))


@pytest.mark.parametrize("first", range(0, TINY, SHARD))
@pytest.mark.few(1)
def test_exact_and_search_equal_brute_force_on_tiny_instances(first):
    infeasible = 0
    for seed in range(first, first + SHARD):
        instance = tiny(seed)
        best = brute_force(instance)
        if not np.isfinite(best):
            infeasible += 1
            with pytest.raises(InfeasibleError):
                solve_exactly(instance, time_limit_s=60)
            assert can_be_placed(instance, time_limit_s=60) is False
            continue
        exact = solve_exactly(instance, time_limit_s=60)
        found = search(instance, seed=seed, rounds=60)
        assert exact.power == pytest.approx(best, rel=1e-9), seed
        assert exact.lower_bound == pytest.approx(best, rel=1e-6), seed
        assert found is not None, seed
        assert found.power == pytest.approx(best, rel=1e-9), seed
        assert found.lower_bound <= best * (1 + 1e-9), seed
    assert 0 < infeasible < SHARD / 2


def test_the_printed_linearisation_has_the_same_optimum():
    for seed in range(40):
        instance = tiny(seed)
        if not np.isfinite(brute_force(instance)):
            continue
        tight = solve_exactly(instance, time_limit_s=60)
        printed = solve_exactly(instance, time_limit_s=60, as_printed=True)
        assert printed.power == pytest.approx(tight.power, rel=1e-9), seed


@pytest.mark.parametrize("seed", range(5))
def test_search_is_proven_within_three_percent_of_the_best_at_twenty_by_sixty(seed):
    """Its own bound proves it, for power as in Table 3: no exact run ends in time at this size."""
    setting = Setting(devices=20, topics=40, services=20, load=0.7, network_scale=1.0)
    instance = draw(setting, seed=seed)

    found = search(instance, seed=seed, rounds=100)

    assert found is not None
    assert found.gap <= 0.03


@pytest.mark.parametrize("seed", range(4))
def test_search_equals_exact_on_instances_that_exact_can_prove(seed):
    instance = draw(Setting(devices=4, topics=6, services=4, load=0.7), seed=seed)

    exact = solve_exactly(instance, time_limit_s=60)
    found = search(instance, seed=seed, rounds=200)

    assert exact.gap < 1e-6
    assert found is not None
    assert exact.power <= found.power * (1 + 1e-9)
    assert found.power <= 1.03 * exact.power


def test_methods_rank_as_they_must():
    for seed in range(10):
        instance = draw(Setting(load=0.6), seed=seed)
        greedy = place_greedily(instance)
        random = place_randomly(instance, np.random.default_rng(seed))
        found = search(instance, seed=seed, rounds=60)
        assert greedy is not None
        assert random is not None
        assert found is not None
        assert found.lower_bound <= found.power <= min(greedy.power, random.power)


def test_simple_methods_own_up_when_something_fits_nowhere():
    instance = built(capacity=np.array([43.0, 15.0]))

    assert place_greedily(instance) is None
    assert place_randomly(instance, np.random.default_rng(0)) is None
    assert search(instance, seed=0) is None


def test_greedy_gives_brokers_room_that_a_larger_service_then_misses():
    instance = built(capacity=np.array([43.0, 16.0]))

    assert place_greedily(instance) is None
    found = search(instance, seed=0)
    assert found is not None
    assert found.device_of.tolist() == [1, 0]


def test_splitting_pairs_makes_the_bound_better_and_never_wrong():
    instance = draw(Setting(devices=4, topics=5, services=3, network_scale=1000.0), seed=1)
    exact = solve_exactly(instance, time_limit_s=60)

    without = lower_bound(instance, price_steps=50, split_passes=0)
    with_splits = lower_bound(instance, price_steps=50, split_passes=50)

    assert without < with_splits <= exact.power * (1 + 1e-9)


def test_the_state_foretells_what_every_move_saves():
    instance = draw(Setting(load=0.9), seed=4)
    rng = np.random.default_rng(4)
    state = State(instance)
    for c in range(instance.containers):
        state.put(c, int(rng.integers(instance.devices)))

    def cost():
        return power(instance, state.device_of) + state.price * state.overload

    moved = 0
    for c in rng.permutation(instance.containers).tolist() * 3:
        before = cost()
        changed = state.improve(c)
        moved += bool(changed)
        assert cost() < before if changed else cost() == pytest.approx(before)
    assert moved > 5
    paid = state.pays - instance.alone
    for c in range(instance.containers):
        others = state.partners(c)
        assert (paid[c] >= -1e-6).all()
        assert (len(others) > 0) == bool(paid[c].max() > 1e-9)


@pytest.mark.slow
def test_five_hundred_devices_and_two_thousand_containers_are_placed_with_a_bound():
    setting = Setting(devices=500, topics=1000, services=1000, utilisation=0.003, load=0.7)
    instance = draw(setting, seed=3)
    greedy = place_greedily(instance)

    found = search(instance, seed=1, rounds=20, price_steps=20, split_passes=1)

    assert found is not None
    assert greedy is not None
    assert 0.5 * found.power < found.lower_bound <= found.power < greedy.power


@pytest.mark.parametrize("seed", range(20))
def test_no_placement_within_capacities_violates_a_cut(seed):
    instance = draw(Setting(devices=3, topics=3, services=2, utilisation=0.7, load=0.6), seed=seed)
    devices, containers = instance.devices, instance.containers
    binary = containers * devices
    rows = [*cuts(instance, first_product=binary)]
    feasible = 0

    for place in product(range(devices), repeat=containers):
        device_of = at(*place)
        if (load(instance, device_of) > instance.capacity).any():
            continue
        feasible += 1
        chosen = {c * devices + d for c, d in enumerate(place)}
        for p, (one, other) in enumerate(instance.pairs.tolist()):
            chosen.add(binary + p * devices**2 + place[one] * devices + place[other])
        for terms, most in rows:
            assert sum(value for column, value in terms if column in chosen) <= most + 1e-6

    assert rows
    assert feasible


@pytest.mark.parametrize(("utilisation", "most"), [(0.05, 1), (0.1, 1), (0.25, 3)])
def test_services_use_topics_in_the_stated_average(utilisation, most):
    """Rounded up, two points of Figure 19, 5 and 10 % of ten topics, would be one instance."""
    setting = Setting(utilisation=utilisation)

    used = np.array([(draw(setting, seed=s).shared_traffic > 0).sum(axis=0) for s in range(200)])

    assert used.mean() == pytest.approx(setting.topics_used, abs=0.05)
    assert used.max() == most
