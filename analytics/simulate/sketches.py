"""Many delays to many rows at once: for each its base, sum, least, greatest, and its histogram.

The same histogram as an agent's (docs/metrics.md, "The histogram"), for whole columns.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

GAMMA = 1.02
BUCKETS = 4_096


@dataclass(frozen=True, slots=True)
class Sketches:
    """One entry a row; ``delay`` as it stands in the line."""

    sum_us: Ints
    min_us: Ints
    max_us: Ints
    delay: list[str]


def sketch_rows(row: Ints, delay_us: Ints, rows: int) -> Sketches:
    """The histograms of ``rows`` rows, each of which has at least one delay.

    Args:
        row: To which row each delay belongs.
        delay_us: The delays, in the order of ``row``'s entries.
    """
    if not rows:
        return Sketches(row, row, row, [])
    order = np.argsort(row, kind="stable")
    row, delay_us = row[order], delay_us[order]
    starts = np.searchsorted(row, np.arange(rows))
    min_us = np.minimum.reduceat(delay_us, starts)
    above = delay_us - min_us[row]
    bucket = np.zeros(len(above), dtype=np.int64)
    far = above > 1
    bucket[far] = np.ceil(np.log(above[far]) / np.log(GAMMA)).astype(np.int64)
    key, count = np.unique(row * BUCKETS + bucket, return_counts=True)
    texts = [_entry(*pair) for pair in zip((key % BUCKETS).tolist(), count.tolist(), strict=True)]
    ends = np.searchsorted(key, np.arange(1, rows + 1) * BUCKETS).tolist()
    return Sketches(
        sum_us=np.add.reduceat(delay_us, starts),
        min_us=min_us,
        max_us=np.maximum.reduceat(delay_us, starts),
        delay=[",".join(texts[a:b]) for a, b in pairwise([0, *ends])],
    )


@lru_cache(maxsize=65_536)
def _entry(bucket: int, count: int) -> str:
    return f"[{bucket},{count}]"
