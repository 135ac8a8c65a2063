"""Who leaves full links, against all choices there are."""

from itertools import product

import numpy as np
import pytest

from federator.planner.lagrangian import covers


def least(rate, loss, capacity):
    fits = (
        loss @ leave
        for leave in map(np.array, product([0, 1], repeat=len(rate)))
        if rate @ (1 - leave) <= capacity + 1e-9
    )
    return min(fits)


def links(rng, *, whole):
    link = np.repeat(np.arange(4), rng.integers(1, 9, 4))
    count = len(link)
    rate = rng.integers(1, 5, count).astype(float) if whole else rng.uniform(0.3, 4, count)
    return link, rate, rng.uniform(0, 9, count).round(1), rng.integers(0, 12, 4).astype(float)


@pytest.mark.parametrize("whole", [True, False])
def test_no_choice_loses_less_and_whole_rates_give_the_least(whole):
    rng = np.random.default_rng(4)
    for _ in range(300):
        link, rate, loss, capacity = links(rng, whole=whole)

        cover = covers.cheapest(link, rate, loss, capacity)

        true = sum(
            least(rate[link == e], loss[link == e], capacity[e]) for e in range(len(capacity))
        )
        assert cover.loss <= true + 1e-9
        if whole:
            assert cover.loss == pytest.approx(true)
            assert loss[cover.leaves].sum() == pytest.approx(true)
            load = np.bincount(link[~cover.leaves], rate[~cover.leaves], minlength=4)
            assert (load <= capacity + 1e-9).all()


def test_a_need_too_great_for_steps_is_met_in_fractions():
    rng = np.random.default_rng(6)
    count = 400
    rate, loss = rng.integers(1, 5, count).astype(float), rng.uniform(1, 9, count)

    cover = covers.cheapest(np.zeros(count, dtype=np.intp), rate, loss, np.array([100.0]))

    order = np.argsort(loss / rate)
    needed = np.cumsum(rate[order]) < rate.sum() - 100
    assert rate.sum() - 100 > covers.EXACT_MAX
    assert loss[order][needed].sum() <= cover.loss <= loss[order][needed].sum() + 9


def test_who_fits_stays():
    cover = covers.cheapest(np.array([0, 1]), np.ones(2), np.ones(2), np.array([1.0, 2.0]))

    assert cover.loss == 0
    assert not cover.leaves.any()
