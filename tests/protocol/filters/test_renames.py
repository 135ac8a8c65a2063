from itertools import product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from federator.protocol.filters import contains, matches
from federator.protocol.filters.renames import Renames, TranslatedFilters, check_pairs

PLANT = Renames([("plant7/", "eu/plant7/")])

NAMES = ("a", "b", "c")
TOPICS = ["/".join(levels) for size in (1, 2, 3, 4) for levels in product(NAMES, repeat=size)]
wholes = st.lists(st.sampled_from(NAMES), min_size=1, max_size=2).map("/".join)
prefixes = st.just("") | wholes.map(lambda name: f"{name}/")
pairs = st.lists(
    st.tuples(prefixes, prefixes) | st.tuples(wholes, wholes), min_size=1, max_size=3
).filter(lambda found: check_pairs(found) is None)
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


SITE = Renames([("", "site-a/")])
HUB = Renames([("hub/", "")])
NESTED = Renames([("", "site-a/"), ("shared/", "shared/"), ("alarm", "alarms/site-a")])


@pytest.mark.parametrize(
    ("renames", "local", "federation"),
    [
        (SITE, "x", "site-a/x"),
        (SITE, "site-a/x", "site-a/site-a/x"),
        (SITE, None, "x"),
        (SITE, None, "site-a/$SYS/x"),
        (SITE, "$SYS/x", "$SYS/x"),  # which never leaves; frames are named so
        (HUB, "hub/x", "x"),
        (HUB, "hub/hub/x", "hub/x"),
        (HUB, "x", None),
        (HUB, "hub/", None),
        (HUB, "hub/$SYS/x", None),
        (NESTED, "x", "site-a/x"),
        (NESTED, "shared/x", "shared/x"),
        (NESTED, None, "site-a/shared/x"),
        (NESTED, "alarm", "alarms/site-a"),
        (NESTED, "alarm/x", "site-a/alarm/x"),
        (NESTED, None, "site-a/alarm"),
    ],
)
def test_an_empty_prefix_is_that_of_all_and_the_longest_holds(renames, local, federation):
    if local is not None:
        assert renames.outward(local) == federation
    if federation is not None:
        assert renames.inward(federation) == local


@pytest.mark.parametrize(
    ("renames", "local", "federation"),
    [
        (SITE, "#", ("site-a/#",)),
        (SITE, "+/x", ("site-a/+/x",)),
        (HUB, "hub/#", ("#",)),
        (HUB, "#", ("#",)),
        (HUB, "x/#", ()),
        (NESTED, "#", ("alarms/site-a", "shared/#", "site-a/#")),
        (NESTED, "shared/#", ("shared/#", "site-a/shared")),
        (NESTED, "alarm", ("alarms/site-a",)),
    ],
)
def test_filters_are_asked_for_under_every_name_that_they_have(renames, local, federation):
    assert renames.filter_outward(local) == federation


@given(pairs, st.sampled_from(TOPICS))
def test_there_and_back_is_the_same_wherever_there_is_a_way(pairs, topic):
    renames = Renames(pairs)
    there, here = renames.outward(topic), renames.inward(topic)

    assert there is None or renames.inward(there) == topic
    assert here is None or renames.outward(here) == topic


def in_vain(asked, wanted):
    """Those of ``asked`` that match nothing of ``wanted``: wider than they must be."""
    return [each for each in asked if not any(matches(each, name) for name in wanted)]


@given(pairs, filters)
def test_what_is_asked_of_the_federation_covers_every_name_and_nothing_in_vain(pairs, filter):
    renames = Renames(pairs)

    asked = renames.filter_outward(filter)

    wanted = {renames.outward(topic) for topic in TOPICS if matches(filter, topic)} - {None}
    assert [name for name in wanted if not any(matches(each, name) for each in asked)] == []
    assert in_vain(asked, wanted) == []
    assert not any(contains(a, b) for a in asked for b in asked if a != b)


@given(pairs, filters)
def test_what_is_subscribed_here_covers_every_name_and_nothing_in_vain(pairs, filter):
    renames = Renames(pairs)

    subscribed = renames.filter_inward(filter)

    wanted = {renames.inward(topic) for topic in TOPICS if matches(filter, topic)} - {None}
    assert [name for name in wanted if not any(matches(each, name) for each in subscribed)] == []
    assert in_vain(subscribed, wanted) == []


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
        ([("a", "b/")], 0, 1, "a topic and a beginning of topics"),
        ([("a/", "$x/")], 0, 1, "starts with $"),
        ([("a/", "+/")], 0, 1, "no beginning of a topic"),
        ([("a/", "a/")], 0, 1, "is the local prefix too"),
        ([("", "")], 0, 1, "is the local prefix too"),
        ([("x/", "y/"), ("a/", "a/")], 1, 1, "is the local prefix too"),
        ([("a/", "b/"), ("a/", "c/")], 1, 0, "'a/' is that of rename[0], too"),
        ([("a/", "b/"), ("c/", "b/")], 1, 1, "'b/' is that of rename[0], too"),
    ],
)
def test_renames_that_are_wrong_are_told_by_place_and_reason(pairs, at, half, words):
    found = check_pairs(pairs)

    assert found is not None
    assert found[:2] == (at, half)
    assert words in found[2]
