"""What gateways say about their clients on our broker, put together from pages.

A gateway sees every packet, so it knows who publishes what, and which sessions last; a broker's log
tells neither of publishers nor of an MQTT 5 session's end. Each report is the whole truth of its
gateway and replaces the one before. A gateway that is silent for three reports has no clients here.

Source: docs/protocol.md section 15.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from federator.protocol.guide import SESSIONS_INTERVAL_S, Session, SessionReport
from federator.protocol.timers import Timers
from federator.protocol.types import Epoch, Millis

GATEWAYS_MAX = 256
"""Beyond, new gateways are not heard: whoever may publish here can invent some."""

SILENT_MS = 3 * SESSIONS_INTERVAL_S * 1_000
SESSIONS_MAX = 200_000
"""Of one gateway here; a longer report is not taken."""


@dataclass(slots=True)
class _Gateway:
    number: tuple[Epoch, int] = (Epoch(-1), 0)
    collecting: tuple[Epoch, int] = (Epoch(-1), 0)
    pages: dict[int, tuple[Session, ...]] = field(default_factory=dict)
    sessions: tuple[Session, ...] = ()


class SessionReports:
    """The newest whole report of each gateway. ``revision`` grows when any changes."""

    def __init__(self) -> None:
        self.revision = 0
        self._gateways: dict[str, _Gateway] = {}
        self._timers: Timers[str] = Timers()

    def next_deadline_ms(self) -> Millis | None:
        """When ``on_deadline`` is due."""
        return self._timers.next_deadline_ms()

    def on_deadline(self, *, now_ms: Millis) -> None:
        """Forget who is silent."""
        for name in self._timers.pop_due(now_ms):
            del self._gateways[name]
            self.revision += 1

    def on_page(self, page: SessionReport, *, now_ms: Millis) -> None:
        """Collect a page; with the last one of a newer report, replace the older."""
        if page.page >= page.pages:
            return
        gateway = self._gateways.get(page.gateway)
        if gateway is None:
            if len(self._gateways) >= GATEWAYS_MAX:
                return
            gateway = self._gateways[page.gateway] = _Gateway()
        number = (page.epoch, page.seq)
        if number <= gateway.number or number < gateway.collecting:
            return
        self._timers.set(page.gateway, Millis(now_ms + SILENT_MS))
        if number > gateway.collecting:
            gateway.collecting, gateway.pages = number, {}
        gateway.pages[page.page] = page.sessions
        if sum(map(len, gateway.pages.values())) > SESSIONS_MAX:
            gateway.pages = {}
        elif len(gateway.pages) == page.pages:
            whole = tuple(s for _, part in sorted(gateway.pages.items()) for s in part)
            self.revision += whole != gateway.sessions
            gateway.number, gateway.sessions, gateway.pages = number, whole, {}

    def sessions(self) -> Iterator[Session]:
        """Every session reported, gateway by gateway."""
        for _, gateway in sorted(self._gateways.items()):
            yield from gateway.sessions
