"""What happens next, a heap of calls ordered by (time, order of submission).

Like a stage manager's cue sheet: nobody acts until called, and two cues for the same instant are
called in the order they were written down. So a run depends on nothing but what is written.

Source: FoundationDB's and TigerBeetle's simulators.
"""

import heapq
from collections.abc import Callable
from typing import Any

from federator.protocol.types import Millis

CALLS_MAX = 2_000_000


class RunawayError(Exception):
    """More happened than any sane run needs: something repeats itself without end."""


class Agenda:
    """A simulated clock and the calls that wait for it; after ``calls_max`` a run is given up."""

    def __init__(self, *, calls_max: int = CALLS_MAX) -> None:
        self.now_ms = Millis(0)
        self.calls_made = 0
        self.calls_max = calls_max
        self._order = 0
        self._heap: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []

    def at(self, when_ms: int, call: Callable[..., object], *args: Any) -> None:  # noqa: ANN401
        """Make ``call(*args)`` at ``when_ms``, or now when that has passed."""
        self._order += 1
        due_ms = when_ms if when_ms > self.now_ms else self.now_ms
        heapq.heappush(self._heap, (due_ms, self._order, call, args))

    def run_until(self, end_ms: int) -> None:
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] <= end_ms:
            when_ms, _, call, args = pop(heap)
            self.now_ms = Millis(when_ms)
            self.calls_made += 1
            if self.calls_made > self.calls_max:
                raise RunawayError(f"{self.calls_made} calls by {when_ms} ms")
            call(*args)
        self.now_ms = Millis(end_ms)
