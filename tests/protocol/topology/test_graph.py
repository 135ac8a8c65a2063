"""What holds a graph together, against a library's answers and against trying it out."""

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from federator.protocol.topology.graph import (
    can_spare,
    diameter_of,
    near_of,
    parts_of,
    strength_of,
    weak_of,
    without,
)

PAIRS = st.sets(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=25)


def both(pairs, brokers=range(10)):
    """Ours and the library's."""
    theirs = nx.Graph()
    theirs.add_nodes_from(brokers)
    theirs.add_edges_from((a, b) for a, b in pairs if a != b)
    return near_of(brokers, pairs), theirs


@given(PAIRS)
def test_parts_and_weak_places_are_those_that_a_library_finds(pairs):
    ours, theirs = both(pairs)

    assert set(parts_of(ours)) == set(map(frozenset, nx.connected_components(theirs)))
    assert set(weak_of(ours).brokers) == set(nx.articulation_points(theirs))
    assert {frozenset(b) for b in weak_of(ours).links} == set(map(frozenset, nx.bridges(theirs)))


@given(PAIRS)
def test_the_diameter_is_that_of_a_library(pairs):
    ours, theirs = both(pairs)

    wanted = nx.diameter(theirs) if nx.is_connected(theirs) else None
    assert diameter_of(ours) == wanted


@given(PAIRS)
def test_without_a_spare_link_every_death_leaves_as_many_parts_as_with_it(pairs):
    ours, _ = both(pairs)

    links = sorted((one, other) for one in ours for other in ours[one] if one < other)
    for a, b in links:
        fewer = near_of(ours, {(x, y) for x in ours for y in ours[x]} - {(a, b), (b, a)})
        same = all(
            len(parts_of(without(fewer, {gone}))) == len(parts_of(without(ours, {gone})))
            for gone in ours
            if gone not in (a, b)
        ) and len(parts_of(fewer)) == len(parts_of(ours))
        assert can_spare(ours, a, b) == same


def test_a_long_line_is_nothing_but_weak_places():
    line = near_of(range(5_000), [(n, n + 1) for n in range(4_999)])

    strength = strength_of(line)

    assert strength.weak.brokers == tuple(range(1, 4_999))
    assert len(strength.weak.links) == 4_999
    assert strength.diameter is None  # too many to ask
    assert not strength.survives_any_death


def test_nobody_at_all_holds():
    assert strength_of({}).survives_any_death
