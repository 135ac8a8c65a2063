"""Places on full links: who leaves for whom, what that costs, and who knows another way."""

import math
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.papers.pricing.channels import (
    COMES,
    STAYS,
    Channel,
    Rate,
    charge,
    for_sale,
    leavers,
    leaves,
)
from lab.papers.pricing.messages import Price, Seat, Want
from lab.papers.pricing.topic_state import Detour, want

SEATS = st.lists(
    st.tuples(st.integers(1, 6), st.one_of(st.floats(0, 50), st.just(math.inf))), max_size=7
).map(lambda pairs: [Seat(topic, float(rate), loss) for topic, (rate, loss) in enumerate(pairs)])


def cheapest(seats, lacking):
    """By trying all sets."""
    sets = (some for size in range(len(seats) + 1) for some in combinations(seats, size))
    enough = [s for s in sets if sum(seat.rate for seat in s) >= lacking]
    return min((sum(seat.loss for seat in s) for s in enough), default=math.inf)


@given(SEATS, st.integers(1, 20))
def test_leavers_make_enough_room_and_are_charged_for_what_they_lose(seats, lacking):
    loss, who = leavers(for_sale(seats, 99), lacking)

    best = cheapest(seats, lacking)
    gone = [seat for seat in seats if seat.topic in who]
    assert loss >= best - 1e-9
    assert math.isfinite(loss) == math.isfinite(best)
    if math.isfinite(loss):
        assert sum(seat.rate for seat in gone) >= lacking
        assert loss == pytest.approx(sum(seat.loss for seat in gone))


@given(SEATS, st.integers(1, 6))
def test_where_all_rates_are_equal_leavers_are_the_cheapest(seats, count):
    alike = [Seat(seat.topic, 2.0, seat.loss) for seat in seats]

    loss, _ = leavers(for_sale(alike, 99), 2.0 * count)

    assert loss == pytest.approx(cheapest(alike, 2.0 * count))


def full(*seats, capacity=4.0, margin=0.1):
    load = sum(seat.rate for seat in seats)
    return Price(0.0, 100.0, load, for_sale(seats, 9), margin), capacity


def test_a_newcomers_requests_share_the_loss_of_who_leaves_for_it():
    price, capacity = full(Seat(1, 2.0, 3.0), Seat(2, 2.0, 8.0))

    each = charge(price, capacity=capacity, topic=7, rate=Rate(2.0, 0.0), carried=False, requests=2)

    assert each == pytest.approx(3.0 / 2 + 0.1)


@pytest.mark.parametrize(("whole", "paid"), [(1.0, 6.0), (0.5, 4.5), (0.0, 3.0)])
def test_while_places_are_sold_for_a_share_a_newcomer_pays_for_the_room_that_it_needs(whole, paid):
    price, capacity = full(Seat(1, 4.0, 6.0))
    price = replace(price, whole=whole)

    each = charge(price, capacity=capacity, topic=7, rate=Rate(2.0, 0.0), carried=False, requests=1)

    assert each == pytest.approx(paid + 0.1)


def test_of_too_many_only_the_cheapest_is_asked_to_leave_and_may_stay_for_the_next_ones_loss():
    price, capacity = full(Seat(1, 2.0, 3.0), Seat(2, 2.0, 8.0), Seat(3, 2.0, 9.0))

    def asks(topic):
        rate = Rate(2.0, 0.0)
        return charge(price, capacity=capacity, topic=topic, rate=rate, carried=True, requests=1)

    assert [leaves(price, capacity=capacity, topic=topic) for topic in (1, 2, 3)] == [True, 0, 0]
    assert asks(1) == pytest.approx(8.1)
    assert asks(2) == asks(3) == 0


def test_nobody_sits_on_a_link_for_good_whose_overload_lasts():
    channel = Channel(4.0, margin=0.1, present=100.0)
    rates = {1: Rate(3.0, 0.0), 2: Rate(3.0, 0.0)}
    asked = []
    for round_ in range(40):
        for topic, loss in ((1, 3.0), (2, 8.0)):
            channel.renew(topic, topic, round_, loss=loss)
        price = channel.price(rates)
        asked.append(charge(price, capacity=4.0, topic=1, rate=rates[1], carried=True, requests=1))
        channel.end_round(round_, 60 + round_, rates)

    assert asked[0] < 10
    assert asked == sorted(asked)
    assert asked[-1] > 10 * asked[0]


def test_a_topic_that_goes_to_and_fro_between_full_links_is_pressed_ever_more():
    channel = Channel(4.0)
    rates = {1: Rate(3.0, 0.0), 2: Rate(3.0, 0.0)}
    pressures = []
    for round_ in range(40):
        channel.renew(1, 1, round_, loss=1.0)
        channel.renew(2, 2, round_, loss=1.0)
        if round_ % 2:
            channel.release(2, 2)
        channel.end_round(round_, 60 + round_, rates)
        pressures.append(channel.pressure)

    assert pressures[1::2] == sorted(pressures[1::2])
    assert pressures[-1] > 2

    channel.release(1, 1)
    for round_ in range(40, 80):
        channel.end_round(round_, 60 + round_, rates)
    assert channel.pressure == 1


@pytest.mark.parametrize(
    ("load", "stays", "comes"), [(4.05, True, True), (4.15, True, False), (4.25, False, False)]
)
def test_who_is_here_is_judged_more_leniently_than_a_newcomer_and_both_by_how_sure_a_load_is(
    load, stays, comes
):
    price = Price(0.0, 100.0, load, (Seat(1, 2.0, 3.0), Seat(2, load - 2, 8.0)), 0.1, spread=0.05)
    newcomer = Price(0.0, 100.0, load - 2, price.seats, 0.1, spread=0.05)
    assert (STAYS, COMES) == (4.0, 2.0)

    asked = charge(newcomer, capacity=4.0, topic=7, rate=Rate(2.0, 0.0), carried=False, requests=1)

    assert leaves(price, capacity=4.0, topic=1) == (not stays)
    assert (asked == 0) == comes


def test_those_below_who_know_a_cheaper_way_go_it_alone():
    below = [Want(1, 5.0, apart=1.0, over=frozenset({8})), Want(2, 9.0, apart=9.0)]

    asked = want([Detour(2.0, (5, 6))], below, parent=4, here=1, hurry=False)

    assert asked.requests == 4
    assert asked.loss == pytest.approx(2.0 + 1.0 + 2 * 2.0)
    assert asked.over == {5, 6, 8}


@pytest.mark.parametrize(("here", "loss"), [(0, 1.0), (1, 3.0)])
def test_a_way_over_the_parent_is_no_way_when_the_parent_is_gone(here, loss):
    below = [Want(1, 1.0, apart=1.0, over=frozenset({4}))]

    asked = want([Detour(2.0, (4, 6))], below, parent=4, here=here, hurry=False)

    assert asked.loss == pytest.approx(loss)
    assert asked.apart == math.inf


def test_who_knows_no_other_way_loses_everything():
    assert want([], [], parent=4, here=1, hurry=False).loss == math.inf
