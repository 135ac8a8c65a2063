"""Many delays in few numbers, none wrong by more than 1 %: a mergeable histogram.

A ruler with closer marks near zero: bucket ``i`` ends 2 % above bucket ``i - 1``, so each delay in
it is within 1 % of the value that represents it. Histograms with the same ruler are merged by
adding their counts.

Delays are measured by two clocks. If the ruler began at zero, an hour between the clocks would add
1 % of an hour to every error. So it begins at the smallest delay of the row, ``base_us``: the error
is 1 % of what is above that, and subtracting an offset from a row changes only its base.

Source: Masson, Rim, Lee: DDSketch (VLDB 2019); docs/metrics.md, "The histogram".
"""

import math
from collections import Counter
from collections.abc import Iterable

import msgspec

GAMMA = 1.02
BUCKETS_MAX = 4_096
BUCKET_MAX = 2_206  # the bucket of 2**63 - 1 microseconds
_LOG_GAMMA = math.log(GAMMA)


class Sketch(msgspec.Struct, frozen=True, gc=False):
    """The delays of one row, in microseconds."""

    base_us: int  # the smallest
    sum_us: int  # of all
    min_us: int  # the smallest
    max_us: int  # the greatest
    buckets: list[tuple[int, int]]  # (bucket, how many), ascending by bucket


def bucket_of(above_us: int) -> int:
    """The bucket of a delay that is ``above_us``, 0 or more, above its base."""
    return 0 if above_us <= 1 else math.ceil(math.log(above_us) / _LOG_GAMMA)


def value_of(bucket: int) -> float:
    """The value that represents all delays in ``bucket``, in microseconds above the base."""
    return 0.0 if bucket <= 0 else 2.0 * GAMMA**bucket / (1.0 + GAMMA)


def sketch(delays: Iterable[tuple[int, int]]) -> Sketch:
    """The histogram of delays.

    Args:
        delays: (microseconds, how many of that delay); at least one.
    """
    exact: Counter[int] = Counter()
    for delay_us, count in delays:
        exact[delay_us] += count
    base_us = min(exact)
    buckets: Counter[int] = Counter()
    for delay_us, count in exact.items():
        buckets[bucket_of(delay_us - base_us)] += count
    return Sketch(
        base_us=base_us,
        sum_us=sum(delay_us * count for delay_us, count in exact.items()),
        min_us=base_us,
        max_us=max(exact),
        buckets=sorted(buckets.items()),
    )


def quantile(rows: Iterable[tuple[int, Iterable[tuple[int, int]]]], q: float) -> float:
    """The delay that a share ``q`` of all delays in ``rows`` does not exceed, in microseconds.

    Args:
        rows: (base_us, buckets) of each row; together at least one delay.
        q: 0 to 1. The answer stands for the delay at position ``ceil(q * n)`` of ``n``, from 1.
    """
    values = sorted(
        (base_us + value_of(bucket), count)
        for base_us, buckets in rows
        for bucket, count in buckets
    )
    rank = max(1, math.ceil(q * sum(count for _, count in values)))
    seen = 0
    for value, count in values:
        seen += count
        if seen >= rank:
            return value
    raise ValueError("quantile: no delays, at least 1 wanted")
