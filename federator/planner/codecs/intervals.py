"""Means over seeds, with what they are worth."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

from federator.planner.codecs.tree import FloatArray

CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """A mean and half the width of its confidence interval, infinite for one value."""

    mean: float
    half: float

    def __str__(self) -> str:
        if not math.isfinite(self.half):
            return f"{self.mean:,.4g}"
        digits = 2 if self.half == 0 else max(0, 1 - math.floor(math.log10(self.half)))
        return f"{self.mean:,.{digits}f} +- {self.half:.{digits}f}"


def estimate(values: Sequence[float] | FloatArray) -> Estimate:
    """Student's interval for the mean of independent ``values``; at least one."""
    found = np.asarray(values, dtype=np.float64)
    if len(found) < 2:
        return Estimate(float(found.mean()), math.inf)
    quantile = float(student.ppf((1 + CONFIDENCE) / 2, len(found) - 1))
    return Estimate(
        float(found.mean()), quantile * float(found.std(ddof=1)) / math.sqrt(len(found))
    )
