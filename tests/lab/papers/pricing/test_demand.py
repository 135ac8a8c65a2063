"""What is known of a rate: its mean, how sure that is, and whether it has changed."""

import random

import pytest

from lab.papers.pricing.demand import Demand


def noisy(rng, rate):
    return rate * (1 + rng.uniform(-0.1, 0.1))


def rounds_until_noticed(demand, rng, rate, most=30):
    return next((n for n in range(1, most) if demand.take(noisy(rng, rate))), None)


def test_the_error_that_is_told_is_the_one_that_is_made():
    rng = random.Random(5)
    off = []

    for _ in range(300):
        demand = Demand()
        for _ in range(60):
            demand.take(noisy(rng, 4.0))
        off.append((demand.mean - 4.0) / demand.error)

    assert sum(abs(each) <= 1 for each in off) == pytest.approx(0.68 * 300, abs=30)
    assert max(map(abs, off)) < 4


def test_noise_alone_is_no_change_in_forty_thousand_rounds():
    rng = random.Random(1)

    for _ in range(200):
        demand = Demand()
        assert not any(demand.take(noisy(rng, 3.0)) for _ in range(200))


@pytest.mark.parametrize(("share", "most"), [(0.0, 4), (0.6, 5), (0.8, 9), (1.3, 6), (2.0, 5)])
def test_a_lasting_change_is_noticed_within_some_rounds(share, most):
    rng = random.Random(2)
    demand = Demand()
    for _ in range(40):
        demand.take(noisy(rng, 3.0))

    noticed = rounds_until_noticed(demand, rng, 3.0 * share)

    assert noticed is not None
    assert 2 <= noticed <= most
    assert (demand.times, demand.error) == (1, 0.0)


def test_a_burst_of_two_rounds_is_no_change():
    rng = random.Random(3)
    demand = Demand()
    for _ in range(40):
        demand.take(noisy(rng, 3.0))

    burst = [demand.take(30.0), demand.take(30.0)]
    after = [demand.take(noisy(rng, 3.0)) for _ in range(60)]

    assert not any(burst + after)
