"""Our rows of the session flow table, from what the broker's log and the gateways tell.

A gateway sees every packet, so it knows who publishes what, and which sessions last; a broker's log
names each subscription with its QoS, and tells neither of publishers nor of an MQTT 5 session's
end. Where both speak of a client, the gateway is believed about the session.

Each report of a gateway is the whole truth of that gateway and replaces the one before. A gateway
that is silent for three reports has no clients here.

When there are more rows than travel, those of sessions that last go first: without them nobody
could prepare for their clients.

Source: Chen 2020, Table 11; docs/protocol.md 15.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from federator.protocol.discovery import ClientFlow
from federator.protocol.filters import without_share
from federator.protocol.messages.gateways import SESSIONS_INTERVAL_S, ReportedSession, SessionReport
from federator.protocol.messages.session_records import FlowRow, is_sound
from federator.protocol.timers import Timers
from federator.protocol.types import Epoch, Millis

GATEWAYS_MAX = 256
"""Beyond, new gateways are not heard: whoever may publish here can invent some."""

SILENT_MS = 3 * SESSIONS_INTERVAL_S * 1_000
SESSIONS_MAX = 200_000
"""Sessions of one gateway here; a longer report is not taken."""


@dataclass(slots=True)
class _Gateway:
    number: tuple[Epoch, int] = (Epoch(-1), 0)
    collecting: tuple[Epoch, int] = (Epoch(-1), 0)
    pages: dict[int, tuple[ReportedSession, ...]] = field(default_factory=dict)
    sessions: tuple[ReportedSession, ...] = ()


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
        """Forget gateways that are silent."""
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

    def sessions(self) -> Iterator[ReportedSession]:
        """Every session reported, gateway by gateway."""
        for _, gateway in sorted(self._gateways.items()):
            yield from gateway.sessions


def own_rows(
    clients: Iterable[ClientFlow],
    sessions: Iterable[ReportedSession],
    *,
    may_tell: Callable[[str], bool],
    rows_max: int,
) -> frozenset[FlowRow]:
    """The rows of our broker that may travel.

    Args:
        clients: What the log tells of each client.
        sessions: What gateways report; of one client the last report counts.
        may_tell: Whether the federation may know of a topic or filter.
        rows_max: Rows at most.
    """
    reported = {session.client: session for session in sessions}
    rows: dict[tuple[str, str, str], FlowRow] = {}
    for client in clients:
        session = reported.get(client.id)
        keeps = client.keeps if session is None else not session.clean
        for filter, qos in client.filters.items():
            row = FlowRow(
                client.id, "sub", filter, client.connected, keeps, qos, session is not None
            )
            rows[client.id, "sub", filter] = row
    for session in reported.values():
        for filter in session.subscribes:
            row = FlowRow(session.client, "sub", filter, session.on, not session.clean, 1, True)
            rows.setdefault((row.client, row.action, row.topic), row)
        for topic in session.publishes:
            row = FlowRow(session.client, "pub", topic, session.on, not session.clean, 0, True)
            rows[row.client, row.action, row.topic] = row
    told = [row for row in rows.values() if is_sound(row) and may_tell(without_share(row.topic))]
    told.sort(key=lambda row: (not row.keeps, row))
    return frozenset(told[:rows_max])
