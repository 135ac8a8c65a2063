"""How long to wait before the next attempt: exponential, capped, with full jitter.

A thousand agents that lost one broker must not come back in step. Full jitter spreads them over the
whole interval, which costs the broker the least work for the same mean time to success.

Source: M. Brooker, "Exponential Backoff And Jitter", 2015 (the "full jitter" variant).
"""

import random

_DOUBLINGS_MAX = 32


class Backoff:
    """Delays between attempts.

    Args:
        min_ms: Upper bound of the first delay.
        max_ms: Upper bound of every delay. A connection that lasted this long starts afresh.
        rng: Source of the jitter.
    """

    def __init__(self, *, min_ms: int, max_ms: int, rng: random.Random) -> None:
        if not 0 < min_ms <= max_ms:
            raise ValueError(f"back-off: 0 < min_ms <= max_ms wanted, got {min_ms} and {max_ms}")
        self._min_ms = min_ms
        self._max_ms = max_ms
        self._rng = rng
        self._failures = 0

    def next_delay_ms(self) -> float:
        """The delay before the next attempt."""
        ceiling_ms = min(self._max_ms, self._min_ms << self._failures)
        self._failures = min(self._failures + 1, _DOUBLINGS_MAX)
        return self._rng.uniform(0, ceiling_ms)

    def connection_lasted(self, lasted_ms: float) -> None:
        """Forget earlier failures when a connection was up long enough to be trusted."""
        if lasted_ms >= self._max_ms:
            self._failures = 0
