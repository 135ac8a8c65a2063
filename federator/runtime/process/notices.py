"""Writes the notices of the pure core to the log, and complaints that must not fill it."""

from collections.abc import Callable
from typing import Final

import structlog

from federator.protocol.effects import Notice
from federator.protocol.rate_limiter import RateLimiter, WindowCounter
from federator.protocol.types import BrokerId, Millis
from federator.runtime.process.clocks import monotonic_ms

COMPLAINT_GAP_MS: Final = Millis(60_000)
COMPLAINTS_MAX: Final = 64
"""Log lines of one kind in that time: invented brokers must not fill our log."""

_log = structlog.get_logger()


def log_notice(notice: Notice, name_of: Callable[[BrokerId], str] | None = None) -> None:
    """Write ``notice`` to the log, at the level that the core chose.

    If ``name_of`` knows a name of its neighbour, the line contains that too.
    """
    details, neighbour = notice.details, notice.details.get("neighbour")
    if name_of is not None and isinstance(neighbour, int):
        name = name_of(BrokerId(neighbour))
        details = details | ({"neighbour_name": name} if name else {})
    getattr(_log, notice.level)(notice.name, **details)


class Complaints:
    """Logs a warning once a minute per broker, and for a limited number of brokers."""

    def __init__(self) -> None:
        self._about: RateLimiter[str] = RateLimiter(gap_ms=COMPLAINT_GAP_MS, keys_max=1_024)
        self._logged: WindowCounter[str] = WindowCounter(window_ms=COMPLAINT_GAP_MS)

    def complain(self, name: str, **details: int | str) -> None:
        """Log a warning, unless it was logged lately."""
        about = f"{name} {details.get('url', '')} {details.get('broker', '')}"
        now_ms = monotonic_ms()
        logged = self._logged.so_far(now_ms)
        if logged[name] < COMPLAINTS_MAX and self._about.allow(about, now_ms):
            logged[name] += 1
            _log.warning(name, **details)
