"""Waits of less than a millisecond: the loop's own timers count whole ones, and mostly end late.

A wait of one millisecond takes one to two on uvloop. Linux has timers that are files, and a loop
watches files anyway; elsewhere the loop's own timers must do.

Source: timerfd_create(2).
"""

import asyncio
import ctypes
import os
from collections.abc import Callable
from typing import Final

_CLOCK_MONOTONIC: Final = 1
_FLAGS: Final = os.O_NONBLOCK | os.O_CLOEXEC
_COUNT_BYTES: Final = 8

_Times = ctypes.c_long * 4
"""Seconds and nanoseconds: of the period, which stays 0, and until the first expiry."""


class FineTimer:
    """Calls ``on_time`` once, a given number of seconds after ``set``; less than one.

    Its file is open until the owner calls ``close``.
    """

    def __init__(self, on_time: Callable[[], None]) -> None:
        self.is_set = False
        self._on_time = on_time
        self._loop = asyncio.get_running_loop()
        self._times = _Times()
        self._libc = ctypes.CDLL(None)
        self._file = -1
        if hasattr(self._libc, "timerfd_create"):
            self._file = self._libc.timerfd_create(_CLOCK_MONOTONIC, _FLAGS)
        if self._file >= 0:
            self._loop.add_reader(self._file, self._on_readable)

    def set(self, delay_s: float) -> None:
        """Wake up in ``delay_s``, unless already set."""
        if self.is_set:
            return
        self.is_set = True
        if self._file < 0:
            self._loop.call_later(delay_s, self._fire)
            return
        self._times[3] = int(delay_s * 1e9)
        self._libc.timerfd_settime(self._file, 0, self._times, None)

    def close(self) -> None:
        """Cancel, and close the file."""
        self.is_set = False
        if self._file >= 0:
            self._loop.remove_reader(self._file)
            os.close(self._file)
            self._file = -1

    def _on_readable(self) -> None:
        try:
            os.read(self._file, _COUNT_BYTES)
        except BlockingIOError:  # set again since the loop saw it
            return
        self._fire()

    def _fire(self) -> None:
        if self.is_set:
            self.is_set = False
            self._on_time()
