"""A rate from noisy samples: steady under noise and bursts, quick after a lasting change.

Like a doctor who uses the median of many readings, and starts a new page when the last few agree
with each other but not with the page. The value is the median of the last ``SAMPLES_MAX`` samples.
Once the last ``RECENT`` differ from those before by more than chance explains, only they count, and
for as many samples more each new one replaces the oldest: a reported rate is a mean of ten seconds,
so it changes over ten seconds, and the new page began in their midst.

A median of n samples of a normal distribution has the standard error 1.25 sigma / sqrt(n).
"""

from collections import deque
from math import sqrt
from statistics import median
from typing import Final

RECENT: Final = 7
"""Samples that show a change: 14 s at one each two seconds. Most of them must be new ones."""

SAMPLES_MAX: Final = 30
CHANGE_SIGMAS: Final = 3.5
CHANGE_MIN: Final = 0.1
"""A change below this share of the rate is ignored."""

_MEDIAN_ERROR: Final = 1.2533
_SIGMA_PER_DEVIATION: Final = 1.4826


class Estimate:
    """A rate from samples.

    Attributes:
        value: In the unit of the samples.
        error: The standard error of ``value``.
    """

    def __init__(self) -> None:
        self.value = self.error = 0.0
        self._kept: deque[tuple[float, float]] = deque(maxlen=SAMPLES_MAX)
        self._settling = 0  # how many more samples may belong to the change itself

    @property
    def changing(self) -> bool:
        """Whether samples may still be from the change, not from after it."""
        return self._settling > 0

    def add(self, rate: float, error: float = 0.0) -> None:
        """Take a sample and its standard error, as the agent estimated it."""
        self._kept.append((rate, error))
        if self._settling:  # drop samples from the change itself
            self._settling -= 1
            self._kept.popleft()
        elif len(self._kept) >= 2 * RECENT and self._changed():
            self._kept = deque(list(self._kept)[-RECENT:], maxlen=SAMPLES_MAX)
            self._settling = RECENT
        rates = [number for number, _ in self._kept]
        self.value = median(rates)
        spread = max(_spread(rates), median(number for _, number in self._kept))
        self.error = _MEDIAN_ERROR * spread / sqrt(len(rates))

    def _changed(self) -> bool:
        samples = list(self._kept)
        before = [rate for rate, _ in samples[:-RECENT]]
        recent = [rate for rate, _ in samples[-RECENT:]]
        spread = max(_spread(before), median(error for _, error in samples))
        chance = _MEDIAN_ERROR * spread * sqrt(1 / RECENT + 1 / len(before))
        change = abs(median(recent) - median(before))
        least = CHANGE_MIN * max(abs(median(recent)), abs(median(before)))
        return change > max(CHANGE_SIGMAS * chance, least)


def _spread(rates: list[float]) -> float:
    """The standard deviation, estimated from the median deviation."""
    middle = median(rates)
    return _SIGMA_PER_DEVIATION * median(abs(rate - middle) for rate in rates)
