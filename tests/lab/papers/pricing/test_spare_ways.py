"""Spare ways: what a broker tells a neighbour that lies on its own way, and what comes of it."""

import math

import pytest

from lab.papers.pricing.broker import Broker, InLink
from lab.papers.pricing.channels import CLOSED_ROUNDS, Channel
from lab.papers.pricing.messages import Announcement, Route

TOPIC = 5
PUBLISHER = 9


def broker(**about):
    """Number 1, between 2 and 3."""
    made = Broker(id=1, **about)
    for channel, neighbour in enumerate((2, 3)):
        made.in_links[neighbour] = InLink(2 * channel, 1.0, channel, 10.0)
        made.out_arcs[neighbour] = (2 * channel + 1, channel)
        made.owned[channel] = Channel(10.0)
    return made


def hear(to, sender, cost, *path, seq=1, **about):
    route = Route(seq, cost, 1.0, (PUBLISHER, *path, sender), **about)
    return to.hear(Announcement(sender, {TOPIC: route}, {}))


def told(by, neighbour):
    return by.announcements({TOPIC})[neighbour].routes[TOPIC]


def test_a_neighbour_on_our_way_is_told_what_our_way_would_be_without_it():
    one = broker()
    hear(one, 2, 1.0)
    hear(one, 3, 5.0, 8)

    assert (told(one, 3).path, told(one, 3).spare) == ((PUBLISHER, 2, 1), False)
    assert (told(one, 2).path, told(one, 2).spare) == ((PUBLISHER, 8, 3, 1), True)
    assert told(one, 2).cost == pytest.approx(6.0)


def test_a_way_that_leads_over_the_neighbour_too_is_no_spare_way_for_it():
    one = broker()
    hear(one, 2, 1.0)
    hear(one, 3, 5.0, 2)

    assert not told(one, 2).spare
    assert told(one, 2).path == (PUBLISHER, 2, 1)


def test_a_spare_way_that_is_new_or_other_is_a_hint_for_those_on_our_way_until_they_are_told():
    one = broker()

    assert hear(one, 2, 1.0).hints == {}
    assert hear(one, 3, 5.0).hints == {2: {TOPIC}}
    assert one.hints(2, {TOPIC}).routes[TOPIC].spare
    assert hear(one, 3, 5.0).hints == {}
    assert hear(one, 3, 4.0).hints == {2: {TOPIC}}


def test_nobody_follows_a_spare_way_but_losses_and_further_spare_ways_count_on_it():
    one = broker(subscribed={TOPIC})
    hear(one, 2, 1.0)
    one.choose(TOPIC)
    before = one.joins(2).topics[TOPIC].loss

    hear(one, 3, 0.5, spare=True)
    one.choose(TOPIC)

    assert before == math.inf
    assert one.topics[TOPIC].parent == one.topics[TOPIC].best == 2
    assert one.joins(2).topics[TOPIC].loss == pytest.approx(0.0)
    assert told(one, 2).path == (PUBLISHER, 3, 1)


@pytest.mark.parametrize(("pressed", "parent"), [(False, 2), (True, 3)])
def test_who_holds_its_parent_leaves_for_any_gain_if_somebody_above_is_to_leave_a_link(
    pressed, parent
):
    one = broker(subscribed={TOPIC}, round=CLOSED_ROUNDS)
    hear(one, 2, 1.0)
    one.choose(TOPIC)

    hear(one, 2, 5.0, seq=2, pressed=pressed)
    hear(one, 3, 4.95, seq=2)
    one.choose(TOPIC)

    assert one.topics[TOPIC].parent == parent


def test_that_somebody_above_is_to_leave_a_link_is_passed_on():
    one = broker()

    hear(one, 2, 1.0, pressed=True)

    assert told(one, 3).pressed


@pytest.mark.parametrize("spare", [False, True])
def test_who_holds_a_parent_that_is_fed_by_us_chooses_anew(spare):
    one = broker(subscribed={TOPIC}, round=CLOSED_ROUNDS)
    hear(one, 2, 1.0)
    one.choose(TOPIC)
    hear(one, 3, 7.0)

    about = hear(one, 2, 6.0, 8, spare=True) if spare else hear(one, 2, 6.0, 1)
    one.choose(TOPIC)

    assert about.new == {TOPIC}
    assert one.topics[TOPIC].parent == 3


def test_a_rate_that_is_new_is_in_the_price_at_once():
    one = broker(subscribed={TOPIC})
    hear(one, 2, 1.0)
    one.choose(TOPIC)
    one.joins(2)
    before = one.announcements({TOPIC})[2].prices[0].load

    one.hear(Announcement(2, {TOPIC: Route(2, 1.0, 3.0, (PUBLISHER, 2))}, {}))

    assert before == 1.0
    assert one.announcements({TOPIC})[2].prices[0].load == 3.0
