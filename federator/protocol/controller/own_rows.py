"""Our rows of the session flow table, from the broker's log and the gateways' reports.

A gateway sees every packet, so it knows which client publishes what, and which sessions persist; a
broker's log has each subscription with its QoS, but neither publishers nor the end of an MQTT 5
session. Where both report a client, the gateway's report of the session counts.

Each report of a gateway is complete and replaces the one before. A gateway that is silent for three
reports has no clients here.

When there are more rows than we may announce, those of persistent sessions go first: without them
no broker could prepare for their clients.

Source: Chen 2020, Table 11; docs/protocol.md 15.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import nsmallest

from federator.protocol.discovery import ClientFlow
from federator.protocol.filters import without_share
from federator.protocol.messages.gateways import SESSIONS_INTERVAL_S, ReportedSession, SessionReport
from federator.protocol.messages.session_records import FlowRow, is_sound
from federator.protocol.timers import Timers
from federator.protocol.types import Epoch, Millis

GATEWAYS_MAX = 256
"""Beyond this, reports of new gateways are dropped: any client that may publish here can invent
some."""

SILENT_MS = 3 * SESSIONS_INTERVAL_S * 1_000
SESSIONS_MAX = 200_000
"""Sessions of one gateway here; a longer report is dropped."""

REPORTS_BYTES_MAX = 33_554_432
"""Bytes of all reports as sent, complete and incomplete ones."""

UNFINISHED_BYTES_MAX = 16_777_216
"""Bytes of pages of incomplete reports. The report incomplete for longest is dropped first."""


@dataclass(slots=True)
class _Gateway:
    number: tuple[Epoch, int] = (Epoch(-1), 0)
    collecting: tuple[Epoch, int] = (Epoch(-1), 0)
    pages: dict[int, tuple[ReportedSession, ...]] = field(default_factory=dict)
    sessions: tuple[ReportedSession, ...] = ()
    collected: int = 0  # sessions in ``pages``
    sessions_bytes: int = 0


class SessionReports:
    """The newest complete report of each gateway, within bounds."""

    def __init__(self) -> None:
        self.revision = 0  # grows with every change
        self.refused = 0  # pages dropped, for lack of room or with their report
        self._bytes = 0
        self._unfinished: OrderedDict[str, int] = OrderedDict()  # bytes of pages, by gateway
        self._unfinished_bytes = 0
        self._gateways: dict[str, _Gateway] = {}
        self._timers: Timers[str] = Timers()

    def next_deadline_ms(self) -> Millis | None:
        """When ``on_deadline`` is due."""
        return self._timers.next_deadline_ms()

    def on_deadline(self, *, now_ms: Millis) -> None:
        """Drop the reports of silent gateways."""
        for name in self._timers.pop_due(now_ms):
            self._drop_pages(name)
            self._bytes -= self._gateways.pop(name).sessions_bytes
            self.revision += 1

    def on_page(self, page: SessionReport, *, size: int, now_ms: Millis) -> None:
        """Collect a page of ``size`` bytes; the last one of a newer report replaces the older."""
        if page.page >= page.pages:
            return
        gateway = self._gateways.get(page.gateway)
        if gateway is None:
            if len(self._gateways) >= GATEWAYS_MAX:
                self.refused += 1
                return
            gateway = self._gateways[page.gateway] = _Gateway()
        number = (page.epoch, page.seq)
        if number <= gateway.number or number < gateway.collecting:
            return
        self._timers.set(page.gateway, Millis(now_ms + SILENT_MS))
        if number > gateway.collecting:
            self._drop_pages(page.gateway)
            gateway.collecting = number
        if page.page in gateway.pages:
            return  # a duplicate
        gateway.pages[page.page] = page.sessions
        gateway.collected += len(page.sessions)
        self._unfinished.setdefault(page.gateway, 0)
        self._unfinished[page.gateway] += size
        self._unfinished_bytes += size
        if len(gateway.pages) == page.pages and gateway.collected <= SESSIONS_MAX:
            self._replace(page.gateway, gateway)
        while self._unfinished_bytes > UNFINISHED_BYTES_MAX or gateway.collected > SESSIONS_MAX:
            too_long = gateway.collected > SESSIONS_MAX
            self._give_way(page.gateway if too_long else next(iter(self._unfinished)))

    def _replace(self, name: str, gateway: _Gateway) -> None:
        """Activate a report that is now complete, if there is room for it."""
        whole = tuple(s for _, part in sorted(gateway.pages.items()) for s in part)
        size, number = self._unfinished[name], gateway.collecting
        if self._bytes - gateway.sessions_bytes + size > REPORTS_BYTES_MAX:
            self._give_way(name)
            return
        self._drop_pages(name)
        self._bytes += size - gateway.sessions_bytes
        self.revision += whole != gateway.sessions
        gateway.number, gateway.sessions, gateway.sessions_bytes = number, whole, size

    def _give_way(self, name: str) -> None:
        self.refused += len(self._gateways[name].pages)
        self._drop_pages(name)

    def _drop_pages(self, name: str) -> None:
        gateway = self._gateways[name]
        gateway.pages, gateway.collected = {}, 0
        self._unfinished_bytes -= self._unfinished.pop(name, 0)

    def sessions(self) -> Iterator[ReportedSession]:
        """Every reported session, gateway by gateway."""
        for _, gateway in sorted(self._gateways.items()):
            yield from gateway.sessions


def own_rows(
    clients: Collection[ClientFlow],
    sessions: Collection[ReportedSession],
    *,
    may_tell: Callable[[str], bool],
    rows_max: int,
) -> Iterable[FlowRow]:
    """The rows of our broker that we may announce: ``may_tell`` allows their topic or filter.

    ``clients`` are from the log, ``sessions`` from gateways; for one client the last report counts.
    Each row is made on demand, because there may be 100,000; all are made only if there are too
    many.
    """
    reported = {session.client: session for session in sessions}
    rows = (row for row in _rows(clients, reported) if is_sound(row))
    announced = (row for row in rows if may_tell(without_share(row.topic)))
    at_most = sum(len(client.filters) for client in clients)
    at_most += sum(len(s.subscribes) + len(s.publishes) for s in sessions)
    if at_most <= rows_max:
        return announced
    return nsmallest(rows_max, announced, key=lambda row: (not row.keeps, row))


def _rows(
    clients: Iterable[ClientFlow], reported: Mapping[str, ReportedSession]
) -> Iterator[FlowRow]:
    """Every row, once."""
    minded: dict[tuple[str, str, str], FlowRow] = {}
    for client in clients:
        session = reported.get(client.id)
        for filter, qos in client.filters.items():
            if session is None:
                yield FlowRow(client.id, "sub", filter, client.connected, client.keeps, qos)
            else:
                row = FlowRow(
                    client.id, "sub", filter, client.connected, not session.clean, qos, True
                )
                minded[row.client, row.action, row.topic] = row
    for session in reported.values():
        for filter in session.subscribes:
            row = FlowRow(session.client, "sub", filter, session.on, not session.clean, 1, True)
            minded.setdefault((row.client, row.action, row.topic), row)
        for topic in session.publishes:
            row = FlowRow(session.client, "pub", topic, session.on, not session.clean, 0, True)
            minded[row.client, row.action, row.topic] = row
    yield from minded.values()
