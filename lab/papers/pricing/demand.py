"""What a publisher's broker knows of a topic's rate: its mean, how sure that is, whether it moved.

Noise averages out: the mean of n rounds is off by some spread / sqrt(n), which its own variance
tells; links bear that much and no more. A lasting change does not average out: the sums of what
lies above and below the mean beyond an allowance (two-sided CUSUM) grow until they pass a limit.
One outlier counts for little, so a burst of a round or two changes nothing.

Source: E. S. Page, "Continuous inspection schemes" (1954); B. P. Welford (1962) for the variance.
"""

import math
from dataclasses import dataclass

ALLOWANCE = 1.0  # in standard deviations: what lies nearer to the mean speaks against a change
OUTLIER = 4.0
"""In standard deviations: more than this counts as this, so a change takes some rounds to show."""
LIMIT = 10.0  # of the sums, in standard deviations; noise alone passes it once in some 10^8 rounds
SPREAD_MIN = 0.01  # of the mean: a steady rate that moves by less has not changed
ROUNDS_MIN = 8  # rounds after which a variance is believed


@dataclass(slots=True)
class Demand:
    """A rate that is measured, and whether it lasts."""

    times: int = 0  # rounds measured since the rate last changed
    mean: float = 0.0  # of them
    squares: float = 0.0  # sum of squared distances from the mean
    above: float = 0.0  # evidence that the rate has risen, in standard deviations
    below: float = 0.0  # likewise fallen

    def take(self, rate: float) -> bool:
        """Count one more round; whether the rate has changed lastingly, so all begins again."""
        changed = self._changed(rate)
        if changed:
            self.times, self.mean, self.squares = 0, 0.0, 0.0
            self.above = self.below = 0.0
        self._count(rate)
        return changed

    @property
    def error(self) -> float:
        """Standard error of ``mean``; 0 after a single round."""
        if self.times < 2:
            return 0.0
        return math.sqrt(self.squares / (self.times - 1) / self.times)

    def _count(self, rate: float) -> None:
        self.times += 1
        before = rate - self.mean
        self.mean += before / self.times
        self.squares += before * (rate - self.mean)

    def _changed(self, rate: float) -> bool:
        if self.times < ROUNDS_MIN:
            return False
        spread = max(math.sqrt(self.squares / (self.times - 1)), SPREAD_MIN * self.mean)
        off = max(-OUTLIER, min(OUTLIER, (rate - self.mean) / spread)) if spread else 0.0
        self.above = max(0.0, self.above + off - ALLOWANCE)
        self.below = max(0.0, self.below - off - ALLOWANCE)
        return max(self.above, self.below) > LIMIT
