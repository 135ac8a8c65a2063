"""Clocks and floors: small tables in the driver, so no session."""

from itertools import pairwise, permutations

from federator_analytics.transforms.clocks import OneWay, floors, judge
from hypothesis import given
from hypothesis import strategies as st


def seen(**least_us):
    """``_1_2=5_000``: the least delay from broker 1 to broker 2."""
    pairs = {tuple(map(int, key.split("_")[1:])): us for key, us in least_us.items()}
    return {pair: OneWay(us, 3) for pair, us in pairs.items()}


def test_clocks_that_say_nothing_impossible_are_believed_as_they_are():
    clocks = judge(seen(_1_2=5_300, _2_1=7_900), {(1, 2): 5_000})

    assert clocks.verdicts[1, 2].verdict == "ok"
    assert clocks.offset_us(1, 2) == 0


def test_an_offset_is_half_the_difference_of_the_fastest_both_ways():
    clocks = judge(seen(_1_2=5_000 + 90_000, _2_1=5_000 - 90_000), {(1, 2): 5_000})

    assert clocks.verdicts[1, 2].verdict == "corrected"
    assert clocks.offset_us(1, 2) == 90_000
    assert clocks.offset_us(2, 1) == -90_000


def test_an_offset_smaller_than_the_floor_is_found_when_the_floor_is_known():
    told = seen(_1_2=5_000 + 3_000, _2_1=5_000 - 3_000)

    assert judge(told, {(1, 2): 5_000}).offset_us(1, 2) == 3_000
    assert judge(told, {}).verdicts[1, 2].verdict == "ok"  # nothing impossible without a floor


def test_a_one_way_pair_takes_its_clocks_from_pairs_with_traffic_both_ways():
    hour = 3_600_000_000
    told = seen(_1_2=4_000, _2_1=4_100, _2_3=5_000 + hour, _3_2=5_000 - hour, _1_3=9_000 + hour)

    clocks = judge(told, {})

    assert clocks.verdicts[1, 3].verdict == "corrected"
    assert clocks.offset_us(1, 3) == hour


def test_a_one_way_pair_that_nothing_explains_is_flagged():
    early = judge(seen(_2_1=-50_000), {})
    late = judge(seen(_1_2=3_600_000_000), {})

    for clocks in (early, late):
        assert clocks.verdicts[1, 2].verdict == "flagged"
        assert clocks.offset_us(1, 2) is None


@given(
    skews=st.lists(st.integers(-(10**10), 10**10), min_size=2, max_size=5),
    delays=st.lists(st.integers(2_000, 50_000), min_size=10, max_size=10),
)
def test_with_equal_ways_corrected_delays_are_the_true_ones_up_to_the_tolerance(skews, delays):
    pairs = [(a, b) for a in range(len(skews)) for b in range(a + 1, len(skews))]
    true_us = {pair: delays[i % len(delays)] for i, pair in enumerate(pairs)}
    told = {
        (a, b): OneWay(true_us[min(a, b), max(a, b)] + skews[b] - skews[a], 1)
        for a, b in permutations(range(len(skews)), 2)
    }

    clocks = judge(told, true_us)

    for (a, b), one in told.items():
        offset_us = clocks.offset_us(a, b)
        floor_us = true_us[min(a, b), max(a, b)]
        assert abs(one.least_us - offset_us - floor_us) <= max(1_000, floor_us // 4)


@given(st.dictionaries(st.tuples(st.integers(0, 5), st.integers(0, 5)), st.integers(0, 99)))
def test_floors_are_those_of_a_stupid_search_over_all_ways(measured):
    measured = {pair: us for pair, us in measured.items() if pair[0] != pair[1]}
    halves = {}
    for (one, other), us in measured.items():
        link = min(one, other), max(one, other)
        halves[link] = min(us // 2, halves.get(link, us))

    found = floors(measured)

    for a in range(6):
        for b in range(a + 1, 6):
            ways = [
                (a, *middle, b)
                for n in range(5)
                for middle in permutations(set(range(6)) - {a, b}, n)
            ]
            steps = [[(min(link), max(link)) for link in pairwise(way)] for way in ways]
            lengths = [sum(map(halves.get, way)) for way in steps if set(way) <= set(halves)]
            assert found.get((a, b)) == (min(lengths) if lengths else None)
