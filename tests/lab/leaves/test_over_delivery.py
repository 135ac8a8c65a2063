"""What a bounded cover carries in vain, drawn; ``over-delivery --live`` does it on processes."""

from itertools import pairwise

import pytest

from lab.leaves.in_vain import DEFAULT, IN_VAIN_MAX
from lab.leaves.naming import FILTERS, LEAVES, NAMINGS, SKEW
from lab.leaves.over_delivery import over_delivery


def shares(name, *bounds, seed=2, skew=SKEW):
    results = over_delivery(NAMINGS[name], bounds, seed=seed, publications=60_000, skew=skew)
    return [(each.first.in_vain, each.then.in_vain) for each in results]


@pytest.mark.parametrize("name", NAMINGS)
def test_a_hub_has_a_hundred_leaves_of_a_hundred_filters(name):
    wanted = NAMINGS[name].wanted(1)

    assert len(wanted) == LEAVES
    assert {len(set(filters)) for filters in wanted.values()} <= {FILTERS, FILTERS - 1}


@pytest.mark.parametrize("skew", [0.0, SKEW])
def test_a_chain_of_shops_pays_little_for_the_default_bound(skew):
    ((first, then),) = shares("shops", DEFAULT, skew=skew)

    assert max(first, then) < IN_VAIN_MAX


def test_with_room_for_all_nothing_is_carried_in_vain():
    assert shares("shops", 36_000) == [(0.0, 0.0)]


def test_more_room_is_never_much_worse():
    shops = [then for _, then in shares("shops", 1_050, 1_500, 3_000, 12_000)]

    assert all(more <= less + 0.01 for less, more in pairwise(shops))


def test_a_hub_learns_from_what_came_in_vain():
    ((first, then),) = shares("pooled", DEFAULT)

    assert first > 0.9
    assert then == 0.0
