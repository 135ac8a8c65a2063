"""What a link costs, by hand."""

from lab.local_steering.prices import PRICE_FIRST, LinkPricer
from lab.local_steering.words import PRICE_MAX

EVERY_MS = 2_000


def fed(*rates, capacity=100.0):
    pricer = LinkPricer()
    for at, rate in enumerate(rates):
        pricer.sample(rate, capacity, at * EVERY_MS)
    return pricer


def test_a_link_that_keeps_up_costs_nothing():
    assert fed(*[79.0] * 40).price == 0


def test_a_link_without_a_known_capacity_costs_nothing():
    assert fed(*[500.0] * 40, capacity=None).price == 0


def test_a_link_over_its_threshold_has_a_low_price_that_stays():
    assert fed(*[90.0] * 40).price == PRICE_FIRST


def test_the_price_of_an_overloaded_link_rises_up_to_a_bound():
    prices = [fed(*[120.0] * count).price for count in (6, 8, 10, 100)]

    assert prices[0] == 0 < prices[1] < prices[2] < prices[3] == PRICE_MAX


def test_a_burst_that_six_samples_tell_of_costs_nothing():
    assert fed(*[50.0] * 30, *[150.0] * 6).price == 0


def test_when_enough_have_left_the_price_is_gone_at_once_and_stays_so():
    pricer = fed(*[120.0] * 12)
    now_ms = 12 * EVERY_MS
    assert pricer.price > PRICE_FIRST

    pricer.shift(-50.0, now_ms)

    assert (pricer.load, pricer.price) == (70, 0)
    for part in range(1, 20):  # what is measured tells of the last ten seconds
        left = min(1.0, part * EVERY_MS / 10_000)
        pricer.sample(120 - 50 * left, 100.0, now_ms + part * EVERY_MS)
        assert (round(pricer.load), pricer.price) == (70, 0)


def test_when_too_few_have_left_the_price_rises_on():
    pricer = fed(*[150.0] * 12)
    before = pricer.price

    pricer.shift(-20.0, 12 * EVERY_MS)
    pricer.sample(150.0, 100.0, 12 * EVERY_MS)

    assert pricer.price == 2 * before
