"""Time in a daemon: the two clocks, one deadline on the event loop, and rests between long work."""

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from federator.protocol.types import Millis, Now

SHARE_MAX = 0.02
"""The share of one core that repeated work may take."""


def monotonic_ms() -> Millis:
    """The monotonic clock in ms; the event loop's timers follow it."""
    return Millis(int(time.monotonic() * 1_000))


def wall_clock_us() -> int:
    """The wall clock in microseconds since 1970."""
    return time.time_ns() // 1_000


def wall_clock_ms() -> int:
    """The wall clock in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def both_clocks() -> Now:
    """Both clocks at this moment."""
    return Now(monotonic_ms(), wall_clock_us())


_PHASE_S = random.random()
"""The phase of our beats within each second: agents of one machine do not all wake up at once."""

_BEAT_MIN = 0.1
"""Part of a beat: a beat due sooner is skipped, for a timer may have fired early."""


def until_beat_s(every_s: float) -> float:
    """How long it is until the next of our beats, which are ``every_s`` apart."""
    rest_s = every_s - (asyncio.get_running_loop().time() - _PHASE_S) % every_s
    return rest_s if rest_s > _BEAT_MIN * every_s else rest_s + every_s


async def beat(every_s: float) -> None:
    """Sleep until the next beat: all tasks that run once a second wake up together."""
    await asyncio.sleep(until_beat_s(every_s))


class DeadlineTimer:
    """One deadline on the event loop: calls ``on_time`` once, when it is due.

    A state machine reports its next deadline after every event, and mostly the same one: setting an
    unchanged deadline costs a comparison.

    Args:
        on_time: May set the timer again.
    """

    def __init__(self, on_time: Callable[[], None]) -> None:
        self._on_time = on_time
        self._handle: asyncio.Handle | None = None
        # Kept here, because uvloop's handle of an immediate callback does not know its time.
        self._at_ms: Millis | None = None

    @property
    def is_set(self) -> bool:
        return self._at_ms is not None

    def set_sooner(self, at_ms: Millis) -> None:
        """As ``set``, unless an earlier deadline is set."""
        if self._at_ms is None or at_ms < self._at_ms:
            self.set(at_ms)

    def set(self, at_ms: Millis | None) -> None:
        """Wake up at this instant of ``monotonic_ms``, soon if it has passed; ``None``: never.

        The deadline set last counts.
        """
        if at_ms == self._at_ms:
            return
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._at_ms = at_ms
        if at_ms is not None:
            delay_s = max(0, at_ms - monotonic_ms()) / 1000
            self._handle = asyncio.get_running_loop().call_later(delay_s, self._fire)

    def _fire(self) -> None:
        self._handle = self._at_ms = None
        self._on_time()


class DutyCycle:
    """How long to rest after work that grows with a table, so that it takes ``SHARE_MAX``.

    Measured in processor time of the calling thread: time in which the thread is stopped is free.
    """

    def __init__(self) -> None:
        self.rest_s = 0.0

    @contextmanager
    def working(self) -> Iterator[None]:
        """Do the work within this context."""
        started_s = time.thread_time()
        yield
        self.rest_s = (time.thread_time() - started_s) / SHARE_MAX
