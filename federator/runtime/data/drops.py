"""Says in the log that something was dropped for want of room, and how much, without a flood.

The links refuse and count; nobody who reads a log sees a counter. So the counters are looked at
now and then: a connection on which they grew gets one line, and then none for ``GAP_MS``.

Source: docs/guarantees.md, "Flow control".
"""

from collections.abc import Iterable
from dataclasses import dataclass

import structlog

from federator.protocol.types import Millis
from federator.runtime.mqtt.link import MqttLink

LOOK_S = 1.0
"""Between two looks: a line comes at most so late."""

GAP_MS = Millis(60_000)
"""Least time between two lines about one connection."""

_log = structlog.get_logger()


@dataclass(slots=True)
class _Told:
    """What was said of one link: how much was dropped by then, and until when no more is said."""

    dropped: int = 0
    quiet_until_ms: Millis = Millis(0)


class DropReports:
    """Watches what links drop."""

    def __init__(self) -> None:
        self._told: dict[MqttLink, _Told] = {}

    def look(self, links: Iterable[MqttLink], *, now_ms: Millis) -> None:
        """Say which of ``links`` dropped since they were last spoken of; forget all others."""
        self._told = {link: self._told.get(link) or _Told() for link in links}
        for link, told in self._told.items():
            so_far = link.counters.publishes_dropped
            if so_far > told.dropped and now_ms >= told.quiet_until_ms:
                _log.warning(
                    "connection.dropped",
                    client_id=link.name,
                    broker=link.endpoint.place,
                    dropped=so_far - told.dropped,
                    so_far=so_far,
                    queued_bytes=link.queued_bytes,
                )
                told.dropped = so_far
                told.quiet_until_ms = Millis(now_ms + GAP_MS)
