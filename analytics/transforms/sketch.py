"""Delay histograms as columns: each bucket of a row becomes a whole number of microseconds.

An agent counts ``delay - base`` in buckets of DDSketch's logarithmic mapping, gamma = 1.02: bucket
0 holds 0 and 1 us, bucket i holds (1.02^(i-1), 1.02^i] and stands for 2 * 1.02^i / 2.02, the value
that is within 1 % of all of them (Masson, Rim, Lee: DDSketch, VLDB 2019). Rounded to whole
microseconds: so sums of weights do not depend on the order of addition, and batch, stream and
cluster agree to the last bit.
"""

import numpy as np

from analytics.schemas.records import BUCKET_MAX

GAMMA = 1.02


def bucket_value_us(bucket: int) -> int:
    """What a bucket stands for, above the row's base. The yardstick rounds as this does."""
    return 0 if bucket == 0 else round(2 * GAMMA**bucket / (1 + GAMMA))


VALUES = np.array([bucket_value_us(bucket) for bucket in range(BUCKET_MAX + 1)], np.int64)
"""Of each bucket."""
