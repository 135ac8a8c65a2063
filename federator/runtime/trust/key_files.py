"""Watches key files: an operator changes keys by replacing files, without a restart.

While one of them cannot be used nothing changes, and that is logged.

Source: docs/security.md, "Changing keys".
"""

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import structlog

from federator.errors import ConfigError, DecodeError
from federator.protocol.rate_limiter import RateLimiter
from federator.protocol.trust.authority import Authority
from federator.protocol.types import Millis
from federator.runtime.process.clocks import monotonic_ms, wall_clock_ms

FILES_CHECKED_S: Final = 2.0
"""Between two checks whether key files have changed."""

EXPIRY_NOTICE_S: Final = 14 * 86_400
DAY_MS: Final = Millis(86_400_000)

_log = structlog.get_logger()


class KeyFiles:
    """The key files of an agent, a gateway or a collector, and whether they changed."""

    def __init__(self, paths: Iterable[Path | None]) -> None:
        self._paths = list(paths)
        self._seen = self._stamps()
        self._expiry: RateLimiter[str] = RateLimiter(gap_ms=DAY_MS, keys_max=1)

    def follow(self, reload: Callable[[], None]) -> None:
        """Call ``reload`` if a file changed; log a file that cannot be used."""
        stamps = self._stamps()
        if stamps == self._seen:
            return
        self._seen = stamps
        try:
            reload()
        except (ConfigError, DecodeError) as error:
            _log.error("trust.keys_not_changed", reason=str(error))

    def tell_expiry(self, expires_s: int) -> None:
        """Log in time, once a day, that our certificate expires."""
        left_s = expires_s - wall_clock_ms() // 1000
        if left_s < EXPIRY_NOTICE_S and self._expiry.allow("", monotonic_ms()):
            _log.warning("trust.expires", days=max(0, left_s // 86_400))

    def _stamps(self) -> list[tuple[int, int] | None]:
        return [_stamp(path) for path in self._paths]


def take_up(revocations: bytes | None, authority: Authority) -> bool:
    """Apply ``revocations``; return whether they are new. Damaged ones are ignored."""
    try:
        return revocations is not None and authority.revoke(revocations)
    except DecodeError as error:
        _log.warning("trust.list_ignored", reason=str(error))
        return False


def _stamp(path: Path | None) -> tuple[int, int] | None:
    with contextlib.suppress(OSError):
        if path is not None:
            status = path.stat()
            return status.st_mtime_ns, status.st_ino
    return None
