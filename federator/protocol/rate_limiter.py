"""Rate limiters: notices and messages are sent now and then, however often there is a reason.

Source: docs/protocol.md 2 (bounds) and 9 (notices that clients cause).
"""

from collections import Counter
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

import msgspec

from federator.protocol.bounded_cache import Recent
from federator.protocol.effects import Notice
from federator.protocol.types import Millis

NOTICE_NAMES_MAX: Final = 256

K = TypeVar("K", bound=Hashable)


class RateLimiter(Generic[K]):
    """Allows each key once per ``gap_ms``.

    It remembers ``keys_max`` keys; the one allowed longest ago is forgotten first.
    """

    def __init__(self, *, gap_ms: Millis, keys_max: int) -> None:
        self._gap_ms = gap_ms
        self._said_at_ms: Recent[K, Millis] = Recent(keys_max)

    def __len__(self) -> int:
        return len(self._said_at_ms)

    def allow(self, key: K, now_ms: Millis) -> bool:
        """Whether ``key`` is allowed now; if so, record it."""
        last_ms = self._said_at_ms.get(key)
        if last_ms is not None and now_ms - last_ms < self._gap_ms:
            return False
        self._said_at_ms.put(key, now_ms)
        return True


class NoticeLimiter:
    """Passes one notice of each name per ``gap_ms`` and counts the others.

    Clients cause most notices, and must not be able to fill our log.
    """

    def __init__(self, *, gap_ms: Millis) -> None:
        self._limiter: RateLimiter[str] = RateLimiter(gap_ms=gap_ms, keys_max=NOTICE_NAMES_MAX)
        self._withheld: Counter[str] = Counter()

    def limit(self, notice: Notice, *, now_ms: Millis) -> list[Notice]:
        """Return ``notice`` with the number ``withheld`` since the last one, or nothing."""
        if not self._limiter.allow(notice.name, now_ms):
            self._withheld[notice.name] += 1
            return []
        withheld = self._withheld.pop(notice.name, 0)
        if not withheld:
            return [notice]
        return [msgspec.structs.replace(notice, details={**notice.details, "withheld": withheld})]


class TokenBucket:
    """A rate limit: ``per_s`` per second, and as many at once."""

    def __init__(self, per_s: int) -> None:
        self._per_s = per_s
        self._left = float(per_s)
        self._at_ms = Millis(0)

    def take(self, now_ms: Millis) -> bool:
        """Take one token; return whether there was one."""
        grown = (now_ms - self._at_ms) * self._per_s / 1_000
        self._left = min(float(self._per_s), self._left + max(0.0, grown))
        self._at_ms = now_ms
        if self._left < 1:
            return False
        self._left -= 1
        return True


class WindowCounter(Generic[K]):
    """Counts events in windows of ``window_ms``; each begins at zero."""

    def __init__(self, *, window_ms: int) -> None:
        self._window_ms = window_ms
        self._window = 0
        self._counts: Counter[K] = Counter()

    def so_far(self, now_ms: Millis) -> Counter[K]:
        """The counts of the present window, for reading and updating."""
        window = now_ms // self._window_ms
        if window != self._window:
            self._window = window
            self._counts.clear()
        return self._counts
