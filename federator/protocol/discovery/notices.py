"""Keeps notices rare: clients cause most of them, and must not be able to fill our log.

Source: docs/protocol.md section 9.
"""

from dataclasses import replace

from federator.protocol.effects import Notice
from federator.protocol.types import Millis


class NoticeLimiter:
    """Passes one notice of each name per ``gap_ms`` and counts the others.

    Args:
        gap_ms: Least time between two notices of one name.
    """

    def __init__(self, *, gap_ms: Millis) -> None:
        self._gap_ms = gap_ms
        self._quiet_until_ms: dict[str, Millis] = {}
        self._withheld: dict[str, int] = {}

    def limit(self, notice: Notice, *, now_ms: Millis) -> list[Notice]:
        """``notice`` with the number ``withheld`` since the last one, or nothing."""
        if now_ms < self._quiet_until_ms.get(notice.name, now_ms):
            self._withheld[notice.name] = self._withheld.get(notice.name, 0) + 1
            return []
        self._quiet_until_ms[notice.name] = Millis(now_ms + self._gap_ms)
        withheld = self._withheld.pop(notice.name, 0)
        if not withheld:
            return [notice]
        return [replace(notice, details={**notice.details, "withheld": withheld})]
