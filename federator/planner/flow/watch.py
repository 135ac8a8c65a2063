"""What a solver is told about the world outside: how long it may take, and when to stop.

The package reads no clock. Whoever calls lends one, and learns on the way how far a solver is.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a solver is.

    Attributes:
        share: Of the work, 0 to 1.
        cost: Best answer so far, infinite when none.
        lower_bound: Proven so far, minus infinity when none.
    """

    share: float
    cost: float = math.inf
    lower_bound: float = -math.inf


@dataclass(frozen=True, slots=True)
class Watch:
    """The clock and the limits of a solver.

    Attributes:
        seconds: A clock that never goes back.
        time_limit_s: Counted from ``started_s``.
        interrupted: Whether somebody wants the best so far, now.
        report: Told how far the solver is; returns quickly.
    """

    seconds: Callable[[], float] = lambda: 0.0
    time_limit_s: float = math.inf
    interrupted: Callable[[], bool] = lambda: False
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
