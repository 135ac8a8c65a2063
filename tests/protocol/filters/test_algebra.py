from itertools import product

import pytest

from federator.protocol.filters import canonical, contains, join, overlaps
from tests.protocol.filters.small_world import FILTERS, PLAIN_FILTERS, topics_of

NAMED = [filter for filter in FILTERS if topics_of(filter)]  # no topic of the world is below $t


def test_a_filter_contains_another_when_it_matches_all_its_topics():
    wrong = [
        (a, b)
        for a, b in product(FILTERS, NAMED)
        if contains(a, b) != (topics_of(b) <= topics_of(a))
    ]

    assert not wrong


def test_filters_overlap_when_they_share_a_topic():
    wrong = [
        (a, b)
        for a, b in product(FILTERS, NAMED)
        if overlaps(a, b) != (not topics_of(a).isdisjoint(topics_of(b)))
    ]

    assert not wrong


def test_the_join_is_contained_in_every_filter_that_contains_both():
    for a, b in product(PLAIN_FILTERS, PLAIN_FILTERS):
        both = topics_of(a) | topics_of(b)

        joined = topics_of(join(a, b))

        assert both <= joined
        assert all(joined <= topics_of(c) for c in PLAIN_FILTERS if both <= topics_of(c)), (a, b)


@pytest.mark.parametrize(
    ("a", "b", "joined"),
    [
        ("a/+", "+/b", "+/+"),
        ("a", "a/b", "a/#"),
        ("a/b", "a/b", "a/b"),
        ("a/b/c", "a/x/c", "a/+/c"),
        ("a/#", "a/b/c", "a/#"),
        ("a/b/#", "a/+", "a/+/#"),
        ("a/b/c", "x/y", "+/+/#"),
        ("a", "b/c", "#"),
        ("+/#", "a", "#"),
        ("/#", "a/", "+/+/#"),
        ("$s/a", "$s/b", "$s/+"),
    ],
)
def test_examples_of_joins(a, b, joined):
    assert join(a, b) == joined
    assert join(b, a) == joined


@pytest.mark.parametrize(("a", "b"), [("$s/a", "b/a"), ("$s/a", "+/a"), ("#", "$s"), ("$s", "$t")])
def test_no_join_reaches_across_a_leading_dollar(a, b):
    with pytest.raises(ValueError, match="starts with"):
        join(a, b)
    with pytest.raises(ValueError, match="starts with"):
        join(b, a)


def test_filters_with_the_same_topics_have_one_canonical_name():
    names: dict[frozenset[str], set[str]] = {}

    for filter in PLAIN_FILTERS:
        names.setdefault(topics_of(filter), set()).add(canonical(filter))

    assert all(len(same) == 1 for same in names.values())
