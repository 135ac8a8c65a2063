"""Delays between attempts."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.runtime.mqtt.connection import Backoff


@given(st.integers(1, 1_000), st.integers(0, 10_000), st.integers(0, 2**32))
def test_delays_stay_below_a_ceiling_that_doubles_up_to_the_cap(min_ms, more_ms, seed):
    max_ms = min_ms + more_ms
    backoff = Backoff(min_ms=min_ms, max_ms=max_ms, rng=random.Random(seed))

    for attempt in range(50):
        assert 0 <= backoff.next_delay_ms() <= min(max_ms, min_ms * 2**attempt)


def test_delays_are_spread_over_the_whole_interval():
    backoff = Backoff(min_ms=100, max_ms=100, rng=random.Random(1))

    delays_ms = [backoff.next_delay_ms() for _ in range(1_000)]

    assert min(delays_ms) < 5
    assert max(delays_ms) > 95
    assert 45 < sum(delays_ms) / 1_000 < 55


def test_a_connection_that_lasted_starts_afresh_and_a_short_one_does_not():
    backoff = Backoff(min_ms=1, max_ms=1_000, rng=random.Random(7))
    for _ in range(20):
        backoff.next_delay_ms()

    backoff.connection_lasted(999)
    after_short_ms = backoff.next_delay_ms()
    backoff.connection_lasted(1_000)
    after_long_ms = backoff.next_delay_ms()

    assert after_long_ms <= 1 < after_short_ms


@pytest.mark.parametrize(("min_ms", "max_ms"), [(0, 10), (-1, 10), (11, 10)])
def test_impossible_bounds_are_refused(min_ms, max_ms):
    with pytest.raises(ValueError, match="back-off"):
        Backoff(min_ms=min_ms, max_ms=max_ms, rng=random.Random(0))
