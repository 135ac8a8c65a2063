"""Rings that everybody computes alike: 2-connected, short ways, few changes."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from federator.protocol.topology.graph import near_of, strength_of
from federator.protocol.topology.rings import Rings

IDS = st.sets(st.integers(0, 2**32 - 1), min_size=3, max_size=200)


def seated(ids, rings=2):
    made = Rings(rings)
    for id in ids:
        made.add(id)
    return made


def graph(ids, rings=2):
    made = seated(ids, rings)
    return near_of(ids, [(id, other) for id in ids for other in made.beside(id)])


@given(IDS)
@settings(max_examples=60, deadline=None)
def test_two_rings_survive_any_death_and_have_short_ways(ids):
    strength = strength_of(graph(ids))

    assert strength.survives_any_death
    assert strength.degree_min >= 2
    assert strength.degree_max <= 4
    assert strength.diameter <= max(1, 2 * math.log2(len(ids)))


@given(IDS)
def test_neighbours_agree(ids):
    made = seated(ids)

    for id in ids:
        assert all(id in made.beside(other) for other in made.beside(id))


@given(IDS, st.integers(0, 2**32 - 1))
def test_who_comes_moves_nobody_but_those_beside_him(ids, newcomer):
    before, after = seated(ids - {newcomer}), seated(ids | {newcomer})

    moved = {id for id in ids - {newcomer} if before.beside(id) != after.beside(id)}

    assert moved <= after.beside(newcomer)


@given(IDS)
def test_who_leaves_is_as_if_he_had_never_been_there(ids):
    gone = min(ids)
    left, never = seated(ids), seated(ids - {gone})
    left.discard(gone)

    assert all(left.beside(id) == never.beside(id) for id in ids)


def test_who_cannot_be_reached_is_passed_over():
    made = seated({1, 2, 3, 4, 5}, rings=1)
    unreachable = min(made.beside(1))

    assert unreachable not in made.beside(1, skip={unreachable})
    assert len(made.beside(1, skip={unreachable})) == 2
    assert made.beside(1, skip={2, 3, 4, 5}) == set()
