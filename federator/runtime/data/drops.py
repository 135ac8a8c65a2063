"""Logs, without a flood, that publications were dropped for want of room, and how many.

The links refuse and count, but a log shows no counters. So we check the counters now and then: a
connection with a grown counter gets one line, and then none for ``GAP_MS``.

Source: docs/guarantees.md, "Flow control".
"""

from collections.abc import Iterable

import structlog

from federator.protocol.rate_limiter import RateLimiter
from federator.protocol.types import Millis
from federator.runtime.mqtt.link import MqttLink

LOOK_S = 1.0
"""Between two checks: the greatest delay of a line."""

GAP_MS = Millis(60_000)
"""Least time between two lines about one connection."""

LINKS_MAX = 4_096

_log = structlog.get_logger()


class DropReports:
    """Watches what links drop."""

    def __init__(self) -> None:
        self._logged_drops: dict[MqttLink, int] = {}  # how many drops of each link were logged
        self._lines: RateLimiter[str] = RateLimiter(gap_ms=GAP_MS, keys_max=LINKS_MAX)

    def look(self, links: Iterable[MqttLink], *, now_ms: Millis) -> None:
        """Log which of ``links`` dropped since their last line; forget all other links."""
        self._logged_drops = {link: self._logged_drops.get(link, 0) for link in links}
        for link, logged in self._logged_drops.items():
            so_far = link.counters.publishes_dropped
            if so_far > logged and self._lines.allow(link.client_id, now_ms):
                _log.warning(
                    "connection.dropped",
                    client_id=link.name,
                    broker=link.endpoint.place,
                    dropped=so_far - logged,
                    so_far=so_far,
                    queued_bytes=link.queued_bytes,
                )
                self._logged_drops[link] = so_far
