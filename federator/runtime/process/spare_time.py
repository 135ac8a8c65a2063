"""Whether processors have spare time, so that publications need not wait to save some.

Gathering publications for a millisecond saves system calls here and in brokers. That is worth its
delay only where processors are short. This is called thousands of times a second and measures a few
times: what the kernel counted of the whole machine, and the time that this thread took.

Source: proc(5), ``/proc/stat``.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

LOOK_S: Final = 0.2
IDLE_MIN, IDLE_STAYS_MIN = 0.3, 0.15
"""Share of the machine's processor time: so much idle is spare time, until less than the second
is."""

OWN_MAX, OWN_STAYS_MAX = 0.4, 0.75
"""Share of one processor: what this thread may take, with and without gathering, which saves most
of its time in a flood."""

_STAT: Final = Path("/proc/stat")
_IDLE: Final = slice(3, 5)  # idle, and waiting for a disk


def machine_ticks() -> tuple[int, int]:
    """Ticks of all processors since the start: idle ones, and all. Raises ``OSError``."""
    with _STAT.open("rb") as file:
        ticks = [int(field) for field in file.readline().split()[1:9]]
    return sum(ticks[_IDLE]), sum(ticks)


class SpareTime:
    """Measures at most every ``LOOK_S`` while it is called.

    The time before the first measurement, and without calls, counts as well.
    """

    def __init__(
        self,
        ticks: Callable[[], tuple[int, int]] = machine_ticks,
        clock: Callable[[], float] = time.monotonic,
        own_s: Callable[[], float] = time.thread_time,
    ) -> None:
        self._ticks, self._clock, self._own_s = ticks, clock, own_s
        self._there_is = False
        self._at_s, self._own_before_s = clock(), own_s()
        self._before = self._read()

    def __call__(self) -> bool:
        """Whether there is spare time; ``False`` where it cannot be measured."""
        now_s = self._clock()
        if now_s - self._at_s >= LOOK_S:
            self._look(now_s)
        return self._there_is

    def _look(self, now_s: float) -> None:
        own_s, ticks = self._own_s(), self._read()
        own = (own_s - self._own_before_s) / (now_s - self._at_s)
        idle, total = (now - before for now, before in zip(ticks, self._before, strict=True))
        self._at_s, self._own_before_s, self._before = now_s, own_s, ticks
        idle_min, own_max = IDLE_MIN, OWN_MAX
        if self._there_is:
            idle_min, own_max = IDLE_STAYS_MIN, OWN_STAYS_MAX
        self._there_is = total > 0 and idle / total >= idle_min and own <= own_max

    def _read(self) -> tuple[int, int]:
        try:
            return self._ticks()
        except (OSError, ValueError):
            return 0, 0
