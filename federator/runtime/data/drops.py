"""Says in the log that something was dropped for want of room, and how much, without a flood.

The links refuse and count; nobody who reads a log sees a counter. So the counters are looked at
now and then: a connection on which they grew gets one line, and then none for ``GAP_MS``.

Source: docs/guarantees.md, "Flow control".
"""

from collections.abc import Iterable

import structlog

from federator.protocol.rate_limiter import RateLimiter
from federator.protocol.types import Millis
from federator.runtime.mqtt.link import MqttLink

LOOK_S = 1.0
"""Between two looks: a line comes at most so late."""

GAP_MS = Millis(60_000)
"""Least time between two lines about one connection."""

LINKS_MAX = 4_096

_log = structlog.get_logger()


class DropReports:
    """Watches what links drop."""

    def __init__(self) -> None:
        self._told: dict[MqttLink, int] = {}  # what of each link is in the log
        self._lines: RateLimiter[str] = RateLimiter(gap_ms=GAP_MS, keys_max=LINKS_MAX)

    def look(self, links: Iterable[MqttLink], *, now_ms: Millis) -> None:
        """Say which of ``links`` dropped since they were last spoken of; forget all others."""
        self._told = {link: self._told.get(link, 0) for link in links}
        for link, told in self._told.items():
            so_far = link.counters.publishes_dropped
            if so_far > told and self._lines.allow(link.client_id, now_ms):
                _log.warning(
                    "connection.dropped",
                    client_id=link.name,
                    broker=link.endpoint.place,
                    dropped=so_far - told,
                    so_far=so_far,
                    queued_bytes=link.queued_bytes,
                )
                self._told[link] = so_far
