"""Applies parsed lines of the broker's log to the subscription table.

A line with one meaning changes the table as it says. An ambiguous line, which may describe several
events, only makes entries doubtful or adds doubtful ones: we then ask for too much, never for too
little. A line that may hide a subscription, or tells us that lines were lost, makes us distrust the
table as a whole (``Reconciliation``).

Source: docs/protocol.md 9.
"""

from collections.abc import Callable
from dataclasses import dataclass

from federator.protocol.client_names import OWN_PREFIX, shown
from federator.protocol.discovery.beginnings import CUT_MARK
from federator.protocol.discovery.log_lines import (
    Ambiguous,
    ClientConnected,
    ClientEnded,
    ClientEvent,
    Dropping,
    LogEvent,
    SessionExpired,
    Subscribed,
    Unreadable,
    Unsubscribed,
)
from federator.protocol.discovery.reconciliation import Reconciliation
from federator.protocol.discovery.subscription_table import SubscriptionTable
from federator.protocol.types import Millis

DROPPED = "the broker drops log lines: our queue there is full"
_LINE_CHARS_MAX = 200


@dataclass(eq=False)
class LineEffects:
    """Applies log lines to the subscription table, and counts them.

    Args:
        table: Is changed.
        reconciliation: Is called when the table cannot be trusted.
        own_id: Client id of the connection that receives the log.
        notice: Reports an event for operators: takes its name, its level, and details by keyword.

    Attributes:
        read: Lines received; counted by the caller.
        ambiguous: Lines with several possible meanings.
        unreadable: Lines without any.
        broker_drops: Lines by which the broker reports that it drops messages for a client of ours.
    """

    table: SubscriptionTable
    reconciliation: Reconciliation
    own_id: str
    notice: Callable[..., None]
    read: int = 0
    ambiguous: int = 0
    unreadable: int = 0
    broker_drops: int = 0

    def on_event(self, event: LogEvent, *, now_ms: Millis) -> None:
        """Apply one log event."""
        match event:
            case Unreadable():
                self.unreadable += 1
                self.table.complete = False
                if event.subscription:
                    self.reconciliation.distrust(
                        "a subscription could not be read from the log", gap=False, now_ms=now_ms
                    )
                self.notice("discovery.unreadable", "warning", line=_shortened(event.line))
            case Ambiguous():
                self.ambiguous += 1
                for candidate in event.candidates:
                    self._on_possible(candidate, now_ms=now_ms)
                if event.cut and any(isinstance(c, Subscribed) for c in event.candidates):
                    self.reconciliation.distrust(
                        "a subscription was cut in the log", gap=False, now_ms=now_ms
                    )
                line, readings = _shortened(event.line), len(event.candidates)
                self.notice("discovery.ambiguous", "warning", line=line, readings=readings)
            case ClientConnected():
                self.table.on_connected(event.id, clean=event.clean, protocol=event.protocol)
            case ClientEnded():
                self.table.on_ended(event.id)
            case SessionExpired():
                self.table.on_ended(event.id, expired=True)
            case Subscribed():
                if not self.table.on_subscribed(event.id, _stored(event), event.qos):
                    self._on_full(now_ms=now_ms)
            case Unsubscribed():
                self.table.on_unsubscribed(event.id, _stored(event))
            case Dropping():
                self._on_dropping(event.id, now_ms=now_ms)

    def _on_possible(self, event: ClientEvent, *, now_ms: Millis) -> None:
        """Apply an event that perhaps happened: no filter that we want may be lost by it."""
        match event:
            case ClientConnected():
                self.table.doubt_connected(event.id)
            case ClientEnded() | SessionExpired():
                self.table.doubt_client(event.id)
            case Subscribed():
                if not self.table.doubt_subscribed(event.id, _stored(event)):
                    self._on_full(now_ms=now_ms)
            case Unsubscribed():
                self.table.doubt_filter(event.id, _stored(event))
            case Dropping():
                self._on_dropping(event.id, now_ms=now_ms)

    def _on_dropping(self, id: str, *, now_ms: Millis) -> None:
        """Handle the report that the broker drops messages for client ``id``: of ours only."""
        if not id.startswith(OWN_PREFIX):
            return
        self.broker_drops += 1
        if id == self.own_id:
            self.reconciliation.lose(DROPPED, now_ms=now_ms)
        self.notice("discovery.broker_drops", "warning", client=_shortened(id))

    def _on_full(self, *, now_ms: Millis) -> None:
        """Distrust the table, unless that is so already: a subscription found no room in it."""
        if self.reconciliation.doubt is None:
            self.reconciliation.distrust(
                f"{self.table.refused} did not fit into the table", gap=False, now_ms=now_ms
            )


def _stored(event: Subscribed | Unsubscribed) -> str:
    """The filter as the table has it: marked where the log cut it off."""
    return event.filter + CUT_MARK if event.cut else event.filter


def _shortened(text: str) -> str:
    """``text`` for a notice: without secrets, cut, and in printable ASCII."""
    return ascii(shown(text)[:_LINE_CHARS_MAX])[1:-1]
