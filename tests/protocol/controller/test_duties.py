"""Strong before weak before any, then load, then distance, then id."""

from itertools import permutations
from operator import attrgetter

from federator.protocol.controller.duties import FAR, Candidate, distances, rounded
from federator.protocol.controller.flow_table import Likeness, Relation

ORDER = [
    Candidate(9, Relation(Likeness.STRONG), load=900, distance=9),
    Candidate(7, Relation(Likeness.WEAK), load=10, distance=3),
    Candidate(8, Relation(Likeness.WEAK_BY_PRESENCE), load=20, distance=1),
    Candidate(6, Relation(Likeness.NONE), load=0, distance=5),
    Candidate(5, Relation(Likeness.NONE), load=1, distance=1),
    Candidate(2, Relation(Likeness.NONE), load=1, distance=2),
    Candidate(3, Relation(Likeness.NONE), load=1, distance=2),
    Candidate(1, Relation(Likeness.NONE), load=1, distance=FAR),
]


def test_each_reason_decides_where_those_before_it_are_equal():
    for shuffled in list(permutations(ORDER))[::997]:
        assert sorted(shuffled, key=attrgetter("rank")) == ORDER


def test_distance_counts_links_even_when_one_end_alone_speaks_of_one():
    links = {1: (2,), 2: (), 3: (2, 4), 5: (6,)}

    assert distances(1, links) == {1: 0, 2: 1, 3: 2, 4: 3}


def test_rounding_hides_jitter_and_keeps_the_order():
    amounts = [rounded(n) for n in range(2_000)]

    assert amounts == sorted(amounts)
    assert all(n / 1.51 <= a <= n for n, a in enumerate(amounts) if n)
    assert len(set(amounts)) < 25
    assert rounded(-0.5) == rounded(0.3) == 0
