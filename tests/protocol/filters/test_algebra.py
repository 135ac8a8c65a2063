from itertools import product

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


def test_filters_with_the_same_topics_have_one_canonical_name():
    names: dict[frozenset[str], set[str]] = {}

    for filter in PLAIN_FILTERS:
        names.setdefault(topics_of(filter), set()).add(canonical(filter))

    assert all(len(same) == 1 for same in names.values())
