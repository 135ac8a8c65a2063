from itertools import product

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


def test_a_name_that_grows_too_long_has_none():
    assert PLANT.outward("plant7/" + "x" * 65_525) is not None
    assert PLANT.outward("plant7/" + "x" * 65_526) is None


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
