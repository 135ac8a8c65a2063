"""Lines of bridges against what becomes of them, over a tiny world, and by hand."""

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from federator.protocol.filters import matches
from federator.protocol.filters.renames import Renames, check_pairs
from federator.protocol.policy.bridge_lines import (
    WAYS,
    BridgeLine,
    carried,
    counterpart,
    filters_of,
)

NAMES = ("a", "b", "w")
TOPICS = ["/".join(levels) for size in (1, 2, 3) for levels in product(NAMES, repeat=size)]
prefixes = st.sampled_from(["", "", "a/", "b/", "a/b/"])
patterns = st.sampled_from(["#", "a", "a/#", "+/a", "b/+", "a/b", "+"])
lines = st.builds(BridgeLine, patterns, st.sampled_from(["out", "in", "both"]), prefixes, prefixes)
bridges = st.lists(
    st.lists(lines, min_size=1, max_size=3, unique=True).map(tuple), min_size=1, max_size=2
)


def crosses(found, bridge, topic, way):
    """Under which name, by the renames and the rules of one link."""
    renames = Renames(found.pairs)
    name = renames.outward(topic) if way == "out" else renames.inward(topic)
    there = name if way == "out" else topic
    allowed = filters_of(found.lines[bridge], way, there=True)
    return name if there and any(matches(each, there) for each in allowed) else None


@given(bridges)
@settings(max_examples=300)
def test_lines_do_what_they_did_unless_they_are_named(bridges):
    found = counterpart(bridges)

    assert check_pairs(found.pairs) is None
    refused = {(bridge, line) for bridge, line, _ in found.refused}
    named = refused | {(each.bridge, each.line) for each in found.differs}
    for (bridge, every), way, topic in product(enumerate(bridges), WAYS, TOPICS):
        line, was = carried(every, topic, way)
        if line is not None and (bridge, line) not in named:
            assert crosses(found, bridge, topic, way) == was, (line, way, topic)


@given(bridges)
@settings(max_examples=200)
def test_what_is_said_to_differ_does(bridges):
    found = counterpart(bridges)

    for each in found.differs:
        assert carried(bridges[each.bridge], each.topic, each.way) == (each.line, each.was)
        assert crosses(found, each.bridge, each.topic, each.way) == each.now != each.was


@given(st.lists(lines, min_size=1, max_size=3, unique=True).map(tuple))
@settings(max_examples=200)
def test_nothing_crosses_by_one_bridge_that_no_line_carried(every):
    found = counterpart([every])

    for way, topic in product(WAYS, TOPICS):
        line, _ = carried(every, topic, way)
        if line is None:
            local = filters_of(found.lines[0], way, there=False)
            name = crosses(found, 0, topic, way)
            here = topic if way == "out" else name
            by_a_parent = any(f"{topic}/" in (e.local, e.remote) for e in every)
            asked = here and any(matches(each, here) for each in local)
            assert name is None or not asked or by_a_parent or found.differs, (way, topic)


def test_a_prefix_for_all_is_one_rename_and_so_is_none_at_all():
    up = BridgeLine("#", "out", remote="site-a/")

    assert counterpart([[up]]).pairs == (("", "site-a/"),)
    assert counterpart([[up, BridgeLine("b/#", "in", remote="site-a/")]]).pairs == (
        ("", "site-a/"),
    )
    assert counterpart([[BridgeLine("#", "both")]]).pairs == ()


def test_of_two_names_of_one_topic_the_second_is_refused_and_told_by_the_first():
    up, down = BridgeLine("#", "out", remote="up/"), BridgeLine("#", "in", remote="down/")

    found = counterpart([[up, down]])

    assert found.refused == ((0, down, up),)
    assert found.lines == ((up,),)


def test_mirrored_twice_is_the_line_itself():
    line = BridgeLine("a/#", "out", local="x/", remote="y/")

    assert line.mirrored == BridgeLine("a/#", "in", local="y/", remote="x/")
    assert line.mirrored.mirrored == line
