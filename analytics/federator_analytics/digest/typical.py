"""The delay of each window over many pairs: a figure that does not jump when a pair comes or goes.

Percentiles of several pairs cannot be merged, and the middle pair's is that of whichever pairs
spoke in the window: when a near pair ends, it jumps though no way became slower. So each pair is
compared with itself alone. A pair's delay in a window is taken as the pair's usual delay times how
slow the window was, and both are fitted to what is known by least squares of the logarithms. The
figure is the mean usual delay times the window's slowness. A pair weighs in that mean by the
windows in which it spoke, so one that comes or goes moves it little by little.

Price indices have the same trouble with goods that are not sold everywhere, and this answer:
R. Summers, International Price Comparisons Based upon Incomplete Data (1973), the
"country-product-dummy" method.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from federator_analytics.digest.tables import Row, Whole

TURNS_MAX = 200
"""Means are taken out of pairs and of windows by turns; where nearly all have all, two will do."""
NEAR = 1e-4
"""A turn that changes no logarithm by more is the last."""
LEAST_US = 1
"""A corrected delay may be 0 or less, which has no logarithm."""

_Floats = npt.NDArray[np.float64]


def typical_us(rows: Sequence[Row]) -> dict[datetime, int]:
    """The typical p50 by window, the earliest first; ``rows`` of ``delay_over_time`` have one."""
    if not rows:
        return {}
    starts, window = _numbered([row["window_start"] for row in rows])
    _, pair = _numbered([(row["origin"], row["destination"], row["strategy"]) for row in rows])
    delay = np.log([max(row["delay_us_p50"], LEAST_US) for row in rows])
    slow = np.zeros(len(starts))
    for _ in range(TURNS_MAX):
        usual = _means(pair, delay - slow[window])
        before, slow = slow, _means(window, delay - usual[pair])
        if np.abs(slow - before).max() < NEAR:
            break
    figures = np.exp(usual[pair].mean() + slow).round().astype(int)
    return dict(sorted(zip(starts, figures.tolist(), strict=True)))


def _numbered(names: Sequence[Any]) -> tuple[list[Any], Whole]:
    """Each name once, and of all of them their places there."""
    places = {name: place for place, name in enumerate(dict.fromkeys(names))}
    return list(places), np.array([places[name] for name in names], np.int64)


def _means(group: Whole, values: _Floats) -> _Floats:
    """The mean of each group's values; groups are numbered from 0."""
    means: _Floats = np.bincount(group, values) / np.bincount(group)
    return means
