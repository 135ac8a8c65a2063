"""One deadline on the event loop: the last one that was set counts.

A machine says when it is due next, after every event, and mostly says the same. Like an alarm
clock: who sets it again for the hour at which it stands need not touch it.

What time a handle of the loop is for is remembered here: uvloop's of what is due at once does not
know.
"""

import asyncio
from collections.abc import Callable

from federator.protocol.types import Millis
from federator.runtime.clocks import monotonic_ms


class Alarm:
    """Calls ``ring`` once, when it is time.

    Args:
        ring: May set the alarm again.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._handle: asyncio.Handle | None = None
        self._at_ms: Millis | None = None

    def set(self, at_ms: Millis | None) -> None:
        """Ring at this instant of ``monotonic_ms``, soon when it has passed; ``None``: never."""
        if at_ms == self._at_ms:
            return
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._at_ms = at_ms
        if at_ms is not None:
            delay_s = max(0, at_ms - monotonic_ms()) / 1000
            self._handle = asyncio.get_running_loop().call_later(delay_s, self._on_time)

    def _on_time(self) -> None:
        self._handle = self._at_ms = None
        self._ring()
