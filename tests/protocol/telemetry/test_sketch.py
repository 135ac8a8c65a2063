"""The histogram of delays: within 1 %, and merging costs nothing."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.protocol.telemetry.sketch import (
    BUCKET_MAX,
    BUCKETS_MAX,
    bucket_of,
    quantile,
    sketch,
    value_of,
)

delays = st.lists(st.integers(-3_600_000_000, 7_200_000_000), min_size=1, max_size=200)


def exact(values: list[int], q: float) -> int:
    return sorted(values)[max(1, math.ceil(q * len(values))) - 1]


@given(st.integers(0, 2**63 - 1))
def test_what_stands_for_a_delay_is_within_one_percent_of_it(above_us: int) -> None:
    error = abs(value_of(bucket_of(above_us)) - above_us)

    assert error <= max(1.0, 0.01 * above_us)
    assert bucket_of(above_us) <= BUCKET_MAX < BUCKETS_MAX


@given(delays, st.sampled_from([0.0, 0.5, 0.95, 0.99, 1.0]))
def test_a_quantile_is_within_one_percent_of_the_exact_one_above_the_smallest(
    values: list[int], q: float
) -> None:
    row = sketch((value, 1) for value in values)

    wanted = exact(values, q)

    assert (row.min_us, row.max_us, row.sum_us) == (min(values), max(values), sum(values))
    found = quantile([(row.base_us, row.buckets)], q)
    assert abs(found - wanted) <= max(1.0, 0.01 * (wanted - min(values)) + 1e-3)


@given(st.lists(delays, min_size=1, max_size=5), st.sampled_from([0.5, 0.95, 0.99]))
def test_merged_rows_answer_as_closely_as_one(parts: list[list[int]], q: float) -> None:
    rows = [sketch((value, 1) for value in part) for part in parts]
    values = [value for part in parts for value in part]

    found = quantile([(row.base_us, row.buckets) for row in rows], q)

    nearest = min(abs(found - value) for value in values)
    spread = max(values) - min(values)
    assert abs(found - exact(values, q)) <= max(2.0, 0.01 * spread + 1e-3)
    assert nearest <= max(1.0, 0.01 * spread + 1e-3)


@given(delays, st.integers(-(10**12), 10**12))
def test_clocks_that_disagree_move_the_base_and_nothing_else(values: list[int], by_us: int) -> None:
    here, there = (sketch((value + move, 1) for value in values) for move in (0, by_us))

    assert there.base_us == here.base_us + by_us
    assert there.buckets == here.buckets


def test_a_delay_counts_as_often_as_publications_had_it() -> None:
    row = sketch([(20_000, 3), (20_000, 2), (30_000, 5)])

    assert row.buckets == [(0, 5), (bucket_of(10_000), 5)]
    assert row.sum_us == 250_000


def test_no_delays_have_no_quantile() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        quantile([], 0.5)
