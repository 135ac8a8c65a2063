"""When a retained value was set, by a clock that all agents push forward.

A version is (microseconds, number, origin), compared in this order, so that any two values of a
topic have one newest wherever they meet. The microseconds are those of the frame that carried the
value; the number is its place in the frame.

The clock never stands still or goes back, and is never behind a version that it saw: a broker that
overwrites a value after it received the value makes a newer one, even with a slow wall clock. It is
a hybrid logical clock with the counter folded into the microseconds.

Source: Kulkarni et al., "Logical Physical Clocks", 2014; docs/protocol.md 13.
"""

from typing import NamedTuple

from federator.protocol.types import BrokerId

CLOCK_LEAP_MAX_US = 86_400_000_000
"""A version moves our clock by at most a day: a clock further ahead is not believed."""


class Version(NamedTuple):
    """When and where a value was set; ``time_us`` is 0 if the time is unknown."""

    time_us: int
    number: int
    origin: BrokerId

    def successor(self, origin: BrokerId) -> "Version":
        """The version of an unseen change after this one."""
        return Version(self.time_us, self.number + 1, origin)


NEVER = Version(-1, 0, BrokerId(0))
"""Older than any version."""


class HybridClock:
    """A clock of microseconds since 1970 that strictly grows."""

    def __init__(self) -> None:
        self._last_us = 0

    def read(self, wall_us: int) -> int:
        """The next instant, given the wall clock."""
        self._last_us = wall_us if wall_us > self._last_us else self._last_us + 1
        return self._last_us

    def observe(self, version: Version, wall_us: int) -> bool:
        """Be later than ``version`` from now on; return ``False`` if it is too far ahead."""
        if version.time_us - wall_us > CLOCK_LEAP_MAX_US:
            return False
        self._last_us = max(self._last_us, version.time_us)
        return True
