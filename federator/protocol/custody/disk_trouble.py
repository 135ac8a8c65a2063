"""Telling that a file cannot be written, once a minute, however often it is tried.

Source: docs/guarantees.md.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from federator.protocol.effects import Notice
from federator.protocol.types import Millis

COMPLAINT_GAP_MS: Final = Millis(60_000)


class DiskTrouble:
    """The errors of one file.

    Args:
        notice: What to say, but for the reason.
        tell: Where notices go.

    Attributes:
        failures: Errors so far.
    """

    def __init__(self, notice: Notice, tell: Callable[[Notice], None]) -> None:
        self.failures = 0
        self._notice = notice
        self._tell = tell
        self._told_ms: Millis | None = None

    def on_error(self, error: OSError, now_ms: Millis) -> None:
        """The file could not be written, or read."""
        self.failures += 1
        if self._told_ms is None or now_ms - self._told_ms >= COMPLAINT_GAP_MS:
            self._told_ms = now_ms
            self._tell(replace(self._notice, details={"reason": error.strerror or str(error)}))
