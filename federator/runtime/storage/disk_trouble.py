"""Telling that a file cannot be written, once a minute, however often it is tried.

Source: docs/guarantees.md.
"""

from typing import Final

import structlog

from federator.protocol.rate_limiter import RateLimiter
from federator.protocol.types import Millis
from federator.runtime.process.clocks import monotonic_ms

COMPLAINT_GAP_MS: Final = Millis(60_000)

_log = structlog.get_logger()


class DiskTrouble:
    """The errors of some files."""

    def __init__(self) -> None:
        self.failures = 0
        self._complaints: RateLimiter[str] = RateLimiter(gap_ms=COMPLAINT_GAP_MS, keys_max=8)

    def on_error(self, event: str, error: OSError) -> None:
        """A file could not be written, or read: log the ``event``, unless it was logged lately."""
        self.failures += 1
        if self._complaints.allow(event, monotonic_ms()):
            _log.error(event, reason=error.strerror or str(error))
