"""What happens next, a heap of calls ordered by (time, order of submission); and what did lately.

Like a stage manager's cue sheet: nobody acts until called, and two cues for the same instant are
called in the order they were written down. So a run depends on nothing but what is written.

Source: FoundationDB's and TigerBeetle's simulators.
"""

import heapq
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from federator.protocol.types import BrokerId, Millis

CALLS_MAX = 2_000_000
TRACE_EVENTS_MAX = 60


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
        """Make every call due by ``end_ms``, then stop the clock there."""
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] <= end_ms:
            when_ms, _, call, args = pop(heap)
            self.now_ms = Millis(when_ms)
            self.calls_made += 1
            if self.calls_made > self.calls_max:
                raise RunawayError(f"{self.calls_made} calls by {when_ms} ms")
            call(*args)
        self.now_ms = Millis(end_ms)


class Clocked:
    """A world under a simulated clock: its last events (``trace``), how often what happened."""

    def __init__(
        self, *, calls_max: int = CALLS_MAX, trace_max: int | None = TRACE_EVENTS_MAX
    ) -> None:
        self.agenda = Agenda(calls_max=calls_max)
        self.trace: deque[tuple[Millis, BrokerId, object]] = deque(maxlen=trace_max)
        self.fired: Counter[str] = Counter()

    @property
    def now_ms(self) -> Millis:
        """The simulated instant."""
        return self.agenda.now_ms

    def run_until(self, end_ms: int) -> None:
        """Let everything due by ``end_ms`` happen."""
        self.agenda.run_until(end_ms)
