"""Busy polling: while data flows, the loop polls its sockets instead of sleeping.

Waking a process takes tens of microseconds, and a process that slept finds its caches cold: at
1,000 publications a second that is most of the delay an agent adds. If spending a processor is the
better choice, an operator sets for how long after each publication the loop stays awake. Linux
offers the same bargain for network cards as ``SO_BUSY_POLL``.
"""

import asyncio
import time


class BusyPoll:
    """Keeps the running loop awake for so many microseconds after data; 0 for never."""

    def __init__(self, for_us: int) -> None:
        self._for_s = for_us / 1e6
        self._until_s = 0.0
        self._awake = False
        self._loop = asyncio.get_running_loop()

    def on_data(self) -> None:
        if not self._for_s:
            return
        self._until_s = time.monotonic() + self._for_s
        if not self._awake:
            self._awake = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """A callback scheduled with ``call_soon`` keeps the loop's next turn from sleeping."""
        self._awake = time.monotonic() < self._until_s
        if self._awake:
            self._loop.call_soon(self._turn)
