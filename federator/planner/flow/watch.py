"""What a solver gets from outside: its time limit, a clock, and a request to stop.

This package reads no clock. The caller passes one, and receives progress reports.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a solver."""

    share: float  # of the work, 0 to 1
    cost: float = math.inf  # best answer so far, infinite when none
    lower_bound: float = -math.inf  # proven so far, minus infinity when none


@dataclass(frozen=True, slots=True)
class Watch:
    """The clock and the limits of a solver."""

    seconds: Callable[[], float] = lambda: 0.0  # a clock that never goes back
    time_limit_s: float = math.inf  # counted from ``started_s``
    interrupted: Callable[[], bool] = lambda: False  # whether to return the best so far, now
    # Receives progress; must return quickly.
    report: Callable[[Progress], None] = lambda progress: None
    started_s: float = 0.0

    def left_s(self) -> float:
        """Seconds left, not negative."""
        return max(0.0, self.time_limit_s - (self.seconds() - self.started_s))

    def over(self) -> bool:
        """Whether to end with the best so far."""
        return self.interrupted() or self.left_s() <= 0


UNWATCHED = Watch()
"""No clock, no limit."""
