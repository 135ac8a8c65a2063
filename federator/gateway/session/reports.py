"""Session reports to agents: which clients are here, and their subscriptions and topics.

From its broker's log an agent learns the subscribers, but not the publishers; the reports complete
the controller's session flow table. A report is complete. It is sent when it changed, and otherwise
often enough that a dead gateway can be told from an unchanged one.

Source: docs/protocol.md 15; Chen 2020, 3.3 (the session flow table).
"""

from collections.abc import Iterable
from typing import Final

from federator.gateway.session.session import ClientSession
from federator.protocol.messages import gateways
from federator.protocol.types import BrokerId, Epoch, Millis

CHANGE_GAP_MS: Final = 1_000
"""Least time between two reports to one broker."""


class Reports:
    """The session reports of one run of the gateway ``name``."""

    def __init__(self, name: str, epoch: int) -> None:
        self._name = name
        self._epoch = Epoch(epoch)
        self._seq = 0
        self._last: dict[BrokerId, tuple[Millis, tuple[tuple[str, int, int], ...]]] = {}

    def due(
        self, broker: BrokerId, sessions: Iterable[ClientSession], now_ms: Millis
    ) -> list[gateways.SessionReport]:
        """The pages to send to ``broker`` now; none if nothing changed."""
        here = sorted(sessions, key=lambda session: session.connect.client_id)
        # Topics are only added, and ``changes`` counts changes of filters, so counts suffice.
        state = tuple(
            (s.connect.client_id, s.subscriptions.changes, len(s.up.topics)) for s in here
        )
        sent_ms, former = self._last.get(broker, (Millis(-(10**9)), ()))
        late = now_ms - sent_ms >= gateways.SESSIONS_INTERVAL_S * 1_000
        if not late and (state == former or now_ms - sent_ms < CHANGE_GAP_MS):
            return []
        self._last[broker] = now_ms, state
        self._seq += 1
        size = gateways.SESSIONS_PER_PAGE_MAX
        rows = [_row(session) for session in here[: gateways.SESSION_PAGES_MAX * size]]
        parts = [tuple(rows[at : at + size]) for at in range(0, max(1, len(rows)), size)]
        return [
            gateways.SessionReport(self._name, self._epoch, self._seq, page, len(parts), part)
            for page, part in enumerate(parts)
        ]


def _row(session: ClientSession) -> gateways.ReportedSession:
    return gateways.ReportedSession(
        session.connect.client_id,
        on=True,
        clean=not session.persistent,
        publishes=tuple(sorted(session.up.topics)[: gateways.TOPICS_PER_SESSION_MAX]),
        subscribes=tuple(sorted(session.subscriptions.granted)[: gateways.TOPICS_PER_SESSION_MAX]),
    )
