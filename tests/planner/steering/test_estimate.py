"""Rates from samples that agents told, each the mean of ten seconds."""

import random

import pytest

from federator.planner.steering.estimate import Estimate


def told(rates, noise=0.0, seed=1):
    """Means of the last five of these rates of two seconds each, as agents tell them."""
    rng = random.Random(seed)
    means = [
        sum(rates[max(0, n - 4) : n + 1]) / len(rates[max(0, n - 4) : n + 1])
        for n in range(len(rates))
    ]
    return [mean * rng.gauss(1.0, noise) for mean in means]


def estimate_of(samples):
    estimate = Estimate()
    for each in samples:
        estimate.add(each, 0.05 * each)
    return estimate


@pytest.mark.parametrize("seed", range(20))
def test_a_shift_is_known_whole_eighteen_seconds_later_though_it_is_told_bit_by_bit(seed):
    shifted = told([100.0] * 40 + [300.0] * 9, noise=0.05, seed=seed)

    assert estimate_of(shifted).value == pytest.approx(300.0, rel=0.08)


def test_a_burst_of_two_seconds_is_forgotten():
    assert estimate_of(told([100.0] * 40 + [300.0] + [100.0] * 20)).value == pytest.approx(100.0)


def test_noise_turns_no_page():
    estimate = Estimate()
    for each in told([100.0] * 60, noise=0.06):
        estimate.add(each, 0.05 * each)
        assert not estimate.changing

    assert estimate.value == pytest.approx(100.0, rel=0.03)
