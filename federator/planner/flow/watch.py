"""What a solver is told about the world outside: how long it may take, and when to stop.

The package reads no clock. Whoever calls lends one, and learns on the way how far a solver is.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a solver is."""

    share: float  # of the work, 0 to 1
    cost: float = math.inf  # best answer so far, infinite when none
    lower_bound: float = -math.inf  # proven so far, minus infinity when none


@dataclass(frozen=True, slots=True)
class Watch:
    """The clock and the limits of a solver."""

    seconds: Callable[[], float] = lambda: 0.0  # a clock that never goes back
    time_limit_s: float = math.inf  # counted from ``started_s``
    interrupted: Callable[[], bool] = lambda: False  # whether somebody wants the best so far, now
    # Told how far the solver is; returns quickly.
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
