from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from federator.protocol.filters import contains, matches
from federator.protocol.filters.renames import Renames, TranslatedFilters, check_pairs

PLANT = Renames([("plant7/", "eu/plant7/")])

NAMES = ("a", "b", "c")
TOPICS = ["/".join(levels) for size in (1, 2, 3, 4) for levels in product(NAMES, repeat=size)]
prefixes = st.lists(st.sampled_from(NAMES), min_size=1, max_size=2).map(
    lambda levels: "/".join([*levels, ""])
)
pairs = st.lists(st.tuples(prefixes, prefixes), min_size=1, max_size=2).filter(
    lambda found: check_pairs(found) is None
)
filters = st.builds(
    lambda levels, rest: "/".join([*levels, *rest]),
    st.lists(st.sampled_from([*NAMES, "+"]), min_size=0, max_size=3),
    st.sampled_from([[], ["#"]]),
).filter(bool)


@pytest.mark.parametrize(
    ("local", "federation"),
    [
        ("plant7/line/1", "eu/plant7/line/1"),
        ("plant7/", "eu/plant7/"),
        ("other", "other"),
        ("plant7", "plant7"),  # it has not the prefix
    ],
)
def test_a_prefix_is_replaced_on_the_way_out_and_put_back_on_the_way_in(local, federation):
    assert PLANT.outward(local) == federation
    assert PLANT.inward(federation) == local


def test_names_that_two_topics_would_share_are_given_to_the_renamed_one():
    assert PLANT.outward("eu/plant7/line") is None
    assert PLANT.inward("plant7/line") is None


def test_a_name_that_grows_too_long_has_none():
    assert PLANT.outward("plant7/" + "x" * 65_525) is not None
    assert PLANT.outward("plant7/" + "x" * 65_526) is None


@pytest.mark.parametrize(
    ("local", "federation"),
    [
        ("plant7/#", ["eu/plant7/#", "plant7"]),
        ("plant7/+/temp", ["eu/plant7/+/temp"]),
        ("+/line", ["+/line", "eu/plant7/line"]),
        ("#", ["#"]),
        ("+/#", ["+/#"]),
        ("+/+/temp", ["+/+/temp", "eu/plant7/+/temp"]),
        ("other/#", ["other/#"]),
        ("eu/plant7/line", []),
        ("eu/#", ["eu/#"]),
    ],
)
def test_a_wildcard_that_spans_the_boundary_asks_for_both_sides(local, federation):
    assert sorted(PLANT.filter_outward(local)) == federation


def test_a_pair_of_prefixes_may_swap_places_of_levels():
    renames = Renames([("a/b/", "c/")])

    assert renames.filter_outward("a/+/x") == ("a/+/x", "c/x")
    assert renames.filter_inward("+/x") == ("+/x", "a/b/x")


@given(pairs, st.sampled_from(TOPICS))
def test_there_and_back_is_the_same_wherever_there_is_a_way(pairs, topic):
    renames = Renames(pairs)
    there, here = renames.outward(topic), renames.inward(topic)

    assert there is None or renames.inward(there) == topic
    assert here is None or renames.outward(here) == topic


def fits(filter, name, topic, renames):
    """Whether ``filter`` asks for ``topic``, or no filter could leave it out."""
    is_a_prefix = any(f"{topic}/" in pair for pair in renames.pairs)  # which x/# matches too
    return matches(filter, name) or matches(filter, topic) or is_a_prefix


@given(pairs, filters)
def test_what_is_asked_of_the_federation_covers_every_name_and_no_more_than_it_must(pairs, filter):
    renames = Renames(pairs)

    asked = renames.filter_outward(filter)

    for topic in TOPICS:
        here = renames.inward(topic)
        if here is not None:
            found = any(matches(each, topic) for each in asked)
            assert found or not matches(filter, here), (topic, here, asked)
            assert not found or fits(filter, here, topic, renames), (topic, asked)
    assert not any(contains(a, b) for a in asked for b in asked if a != b)


@given(pairs, filters)
def test_what_is_subscribed_here_covers_every_name_and_no_more_than_it_must(pairs, filter):
    renames = Renames(pairs)

    subscribed = renames.filter_inward(filter)

    for topic in TOPICS:
        there = renames.outward(topic)
        if there is not None:
            found = any(matches(each, topic) for each in subscribed)
            assert found or not matches(filter, there), (topic, there, subscribed)
            assert not found or fits(filter, there, topic, renames), (topic, subscribed)


@given(pairs, st.lists(filters, unique=True, max_size=6), st.data())
def test_a_set_in_translation_is_the_union_of_translations_after_every_change(pairs, found, data):
    renames = Renames(pairs)
    translated = TranslatedFilters(renames.filter_outward)
    held, told = set(), set()
    for filter in found:
        held.add(filter)
        added, removed = translated.change([filter], [])
        assert not added & told
        assert not removed
        told |= added
    assume(held)
    for filter in data.draw(st.permutations(sorted(held))):
        held.remove(filter)
        added, removed = translated.change([], [filter])
        assert not added
        assert removed <= told
        told -= removed
        assert told == {name for each in held for name in renames.filter_outward(each)}
        assert translated.nameless == sum(not renames.filter_outward(each) for each in held)


@pytest.mark.parametrize(
    ("pairs", "at", "half", "words"),
    [
        ([("a", "b/")], 0, 0, "does not end with /"),
        ([("/", "b/")], 0, 0, "does not end with /"),
        ([("a/", "$x/")], 0, 1, "starts with $"),
        ([("a/", "+/")], 0, 1, "no beginning of a topic"),
        ([("a/", "a/")], 0, 1, "is the local prefix too"),
        ([("a/", "b/"), ("b/", "c/")], 1, 0, "overlaps 'b/' of rename[0]"),
        ([("a/", "b/"), ("c/", "a/x/")], 1, 1, "overlaps 'a/' of rename[0]"),
    ],
)
def test_renames_that_are_wrong_are_told_by_place_and_reason(pairs, at, half, words):
    found = check_pairs(pairs)

    assert found is not None
    assert found[:2] == (at, half)
    assert words in found[2]
