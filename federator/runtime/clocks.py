"""The two clocks: one that only goes forward, for waiting, and the one that people agree on."""

import time

from federator.protocol.types import Millis


def monotonic_ms() -> Millis:
    """The monotonic clock, which the event loop's timers follow, too."""
    return Millis(int(time.monotonic() * 1_000))


def wall_clock_us() -> int:
    """The wall clock, in microseconds since 1970."""
    return time.time_ns() // 1_000


def wall_clock_ms() -> int:
    """The wall clock, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000
