"""The filters that our own clients want, from all sources: log, registrations, configuration.

One rule decides every doubt: **ask for more, never for less**. While log lines may be missing, we
ask for the whole federation (``#``); a subscription that may have vanished stays wanted until the
broker's count shows that it is gone; a line with two readings counts in both.

Lines are missing when the connection was away for longer than the broker keeps them
(``LOG_LINES_KEPT_MS``), when the broker did not keep our session, when our queue there overflowed,
or when no agent was subscribed to the log yet: a new agent beside a broker that is already in use.

Source: docs/protocol.md 9.
"""

import re

from federator.errors import DecodeError
from federator.protocol.client_names import OWN_PREFIX
from federator.protocol.discovery.continuity import LATE_MS, Continuity
from federator.protocol.discovery.interest import (
    Interest,
    InterestChanged,
    MembersChanged,
)
from federator.protocol.discovery.line_effects import DROPPED, LineEffects
from federator.protocol.discovery.log_lines import LogReader
from federator.protocol.discovery.parameters import DiscoveryParameters
from federator.protocol.discovery.reconciliation import (
    CallRoll,
    CountOwn,
    ProbeCounts,
    Reconciliation,
)
from federator.protocol.discovery.records import (
    RECORD_VERSION,
    DiscoveryRecord,
    DiscoverySnapshot,
    doubted,
)
from federator.protocol.discovery.regular_topics import RegularTopics
from federator.protocol.discovery.subscription_table import WARN_PERCENT, Kind, SubscriptionTable
from federator.protocol.effects import Notice
from federator.protocol.rate_limiter import NoticeLimiter
from federator.protocol.timers import earliest
from federator.protocol.types import Millis

VERSION_TOPIC = "$SYS/broker/version"
UPTIME_TOPIC = "$SYS/broker/uptime"
CONNECTED_TOPIC = "$SYS/broker/clients/connected"
COUNT_TOPICS = {
    "$SYS/broker/subscriptions/count": Kind.PLAIN,
    "$SYS/broker/shared_subscriptions/count": Kind.SHARED,
}
SYS_TOPICS = (VERSION_TOPIC, UPTIME_TOPIC, CONNECTED_TOPIC, *COUNT_TOPICS)

LOG_LINES_KEPT_MS = Millis(18_000)
"""The broker drops a queued line after 20 s; this is less, because its clock rounds."""

_NUMBER = re.compile(rb"\d{1,15}(?= seconds\Z|\Z)")
_WHY_CHARS_MAX = 200

DiscoveryEffect = InterestChanged | MembersChanged | ProbeCounts | CountOwn | CallRoll | Notice


class Discovery:
    """Turns the broker's log and ``$SYS`` topics into the set of filters that our clients want.

    Args:
        own_id: Client id of the connection that subscribes to the log.

    Attributes:
        widened: Whether we ask for everything because the table is not trusted.
        is_connected, filters_of, flow: From ``SubscriptionTable``, as far as the log shows.
    """

    def __init__(self, *, own_id: str, parameters: DiscoveryParameters) -> None:
        assert own_id.startswith(OWN_PREFIX), f"our client ids begin with {OWN_PREFIX}"
        self._own_id = own_id
        self._parameters = parameters
        self._interest = Interest(parameters)
        self._table = SubscriptionTable(self._interest, parameters)
        self.is_connected = self._table.is_connected
        self.filters_of = self._table.filters_of
        self.flow = self._table.flow
        self._reader = LogReader(own_id=own_id, known=self._table)
        self._reconciliation = Reconciliation(self._table, parameters)
        self._regular = RegularTopics(self._interest, parameters)
        self._continuity = Continuity()
        self._notices = NoticeLimiter(gap_ms=parameters.notice_gap_ms)
        self._registrations = 0
        self._heard_ms: Millis | None = None  # when we last received anything from the broker
        self._uptime_s = 0
        self._first = True  # the first connection of this process is still to come
        self._unheard = False  # no line was received since the last gap
        self._loaded = False  # a record of the previous process was loaded
        self._pending: list[Notice] = []
        self._lines = LineEffects(
            self._table, self._reconciliation, own_id=own_id, notice=self._notice
        )
        self._reported_doubt: str | None = "nothing yet"  # the doubt last reported to operators
        self.widened = False
        self._warned_full = False
        self._reported_beyond = 0
        for filter in parameters.filters:
            self._interest.count(filter, 1, by_client=False)

    # State

    @property
    def wanted(self) -> frozenset[str]:
        """Every filter that we ask the federation for."""
        return frozenset(self._interest.held)

    @property
    def wanted_count(self) -> int:
        return len(self._interest.held)

    @property
    def doubted(self) -> frozenset[str]:
        """The filters that are wanted only because the table is not trusted."""
        if not self.widened:
            return frozenset()
        return frozenset(f for f in self._parameters.widen_to if self._interest.held[f] == 1)

    @property
    def revision(self) -> int:
        """Grows whenever there is new state to save."""
        return self._lines.read + self._registrations + self._table.revision

    @property
    def table_revision(self) -> int:
        """Grows whenever clients or subscriptions change."""
        return self._table.revision

    def snapshot(self) -> DiscoverySnapshot:
        """The state of discovery for operators. Walks the whole table."""
        doubt, counts = self._doubt(), self._reconciliation.counts
        unknown, unknown_clients = self._unknown()
        tallies = self._table.tallies().values()
        return DiscoverySnapshot(
            trusted=doubt is None,
            widened=self.widened,
            reason=doubt or "",
            counted=counts.get(Kind.PLAIN, -1),
            counted_shared=counts.get(Kind.SHARED, -1),
            sure=sum(tally.sure for tally in tallies),
            doubtful=sum(tally.most - tally.sure for tally in tallies),
            clients=len(self._table),
            wanted=self.wanted_count,
            registered=len(self._regular),
            kept_local=dict(sorted(self._interest.kept_local.items())),
            full_percent=self._table.full_percent,
            lines=self._lines.read,
            ambiguous=self._lines.ambiguous,
            unreadable=self._lines.unreadable,
            broker_drops=self._lines.broker_drops,
            refused=self._table.refused,
            lines_lost=self._continuity.lost,
            groups_beyond_quota=len(self._interest.beyond),
            unknown=unknown,
            unknown_clients=unknown_clients,
            unheard_before_ms=None if doubt is None else self._reconciliation.unheard_before_ms,
        )

    def next_deadline_ms(self) -> Millis | None:
        """When ``on_deadline`` must be called."""
        return earliest(self._reconciliation.next_deadline_ms(), self._regular.next_deadline_ms())

    # Events

    def on_broker_up(self, *, session_present: bool, now_ms: Millis) -> list[DiscoveryEffect]:
        """Follow the log again: the connection is up, and our subscriptions have been sent."""
        self._reader.timestamps.forget()
        away_ms = None if self._heard_ms is None else now_ms - self._heard_ms
        if not session_present:
            self._table.set_own(self._own_id, frozenset())
        if not session_present or away_ms is None or away_ms > LOG_LINES_KEPT_MS:
            self._table.on_gap()
            self._unheard = True
            if self._first and not self._loaded:
                reason = "starting: the broker has not yet been counted"
            elif away_ms is None:
                reason = "the agent did not stop orderly, so lines may be missing"
            else:
                forgotten = "" if session_present else ", and the broker forgot our session"
                reason = f"the log was not heard for {away_ms} ms{forgotten}"
            self._reconciliation.distrust(reason, gap=True, now_ms=now_ms)
        # A session from before our start may hold a probe subscription, which would be counted.
        probes = [self._reconciliation.drop_probe()] if self._first and session_present else []
        if self._first:  # of our own clients, the record keeps only this agent
            self._reconciliation.want_roll(now_ms=now_ms)
        self._first = False
        self._heard_ms = now_ms
        self._table.on_reconnected()
        self._continuity.on_up(session_present=session_present)
        self._reconciliation.on_broker_up(now_ms=now_ms)
        return self._finish(probes, now_ms=now_ms)

    def on_broker_down(self, *, now_ms: Millis) -> list[DiscoveryEffect]:
        """Note that the connection that carries the log is down."""
        self._reconciliation.on_broker_down()
        return self._finish([], now_ms=now_ms)

    def on_own_subscriptions(
        self, id: str, filters: frozenset[str], *, now_ms: Millis
    ) -> list[DiscoveryEffect]:
        """Note that one of our own clients holds exactly ``filters``, whatever the log showed."""
        self._reconciliation.end_tick(now_ms=now_ms)
        if id != self._own_id and filters != self._table.filters_of(id):
            self._reconciliation.on_unordered(now_ms=now_ms)
        self._table.set_own(id, filters)
        return self._finish([], now_ms=now_ms)

    def on_packet(
        self, packet_id: int, *, duplicate: bool, now_ms: Millis
    ) -> list[DiscoveryEffect]:
        """Follow the packet identifier of any QoS 1 message, before its content is read."""
        lost = self._continuity.on_packet(packet_id, duplicate=duplicate)
        if not lost or self._unheard:  # lost in our absence: nothing was trusted since
            return []
        self._reconciliation.lose(DROPPED, now_ms=now_ms)
        self._notice("discovery.lines_lost", "warning", lines=lost, total=self._continuity.lost)
        return self._finish([], now_ms=now_ms)

    def on_mark_sent(self, *, now_ms: Millis) -> list[DiscoveryEffect]:
        """Note that a mark was published; doubt everything when an older one is long overdue."""
        self._continuity.on_mark_sent(now_ms=now_ms)
        late = self._continuity.is_late(now_ms=now_ms)
        if late and not self._reconciliation.late:
            self._reconciliation.distrust(
                f"what the broker tells comes over {LATE_MS} ms late", gap=False, now_ms=now_ms
            )
        self._reconciliation.late = late
        return self._finish([], now_ms=now_ms)

    def on_mark(self, sent_at_ms: Millis) -> None:
        """Note that the mark published at ``sent_at_ms`` has come back."""
        self._continuity.on_mark(sent_at_ms)

    def on_log(self, topic: str, payload: bytes, *, now_ms: Millis) -> list[DiscoveryEffect]:
        """Read a line of the broker's log. Never raises, whatever the line contains."""
        self._heard_ms = now_ms
        self._lines.read += 1
        self._unheard = False
        self._reconciliation.end_tick(now_ms=now_ms)
        if (event := self._reader.read(topic, payload)) is not None:
            self._lines.on_event(event, now_ms=now_ms)
        return self._finish([], now_ms=now_ms)

    def on_sys(
        self, topic: str, payload: bytes, *, now_ms: Millis, retained: bool = False
    ) -> list[DiscoveryEffect]:
        """Handle a ``$SYS`` message; ``retained``: it was stored before we subscribed."""
        self._heard_ms = now_ms
        if retained:
            self._reconciliation.on_stored()
        if topic == VERSION_TOPIC:
            self._reader.on_version(payload.decode(errors="replace"))
            return []
        if (match := _NUMBER.match(payload)) is None:
            return []
        number = int(match.group())
        reconciliation = self._reconciliation
        if topic == UPTIME_TOPIC:
            self._on_uptime(number, now_ms=now_ms)
            if not retained:
                reconciliation.on_tick(now_ms=now_ms)
        elif topic == CONNECTED_TOPIC:
            reconciliation.on_clients_connected(number, stored=retained, now_ms=now_ms)
        elif topic in COUNT_TOPICS:
            kind = COUNT_TOPICS[topic]
            reconciliation.on_count(kind, number, stored=retained, now_ms=now_ms)
        return self._finish([], now_ms=now_ms)

    def _on_uptime(self, uptime_s: int, *, now_ms: Millis) -> None:
        restarted = uptime_s < self._uptime_s
        self._uptime_s = uptime_s
        if restarted:
            self._reconciliation.distrust("the broker restarted", gap=True, now_ms=now_ms)
            self._reconciliation.restarted = True
        if restarted or not self._reconciliation.hears_backlog(now_ms=now_ms):
            self._table.on_restart_known(restarted=restarted)

    def on_regular_topic(self, payload: bytes, *, now_ms: Millis) -> list[DiscoveryEffect]:
        self._registrations += 1
        try:
            self._regular.on_payload(payload, now_ms=now_ms)
        except DecodeError as error:
            self._notice(
                "discovery.registration_refused", "warning", why=str(error)[:_WHY_CHARS_MAX]
            )
        return self._finish([], now_ms=now_ms)

    def on_deadline(self, *, now_ms: Millis) -> list[DiscoveryEffect]:
        """End registrations, compare counts, or probe, whichever is due."""
        self._regular.on_deadline(now_ms=now_ms)
        return self._finish(self._reconciliation.on_deadline(now_ms=now_ms), now_ms=now_ms)

    # On disk

    def record(self, *, now_ms: Millis) -> DiscoveryRecord:
        """The record of everything worth keeping over a restart."""
        return DiscoveryRecord(
            version=RECORD_VERSION,
            trusted=self._reconciliation.doubt is None,
            complete=self._table.complete,
            uptime_s=self._uptime_s,
            registered=self._regular.remaining_ms(now_ms=now_ms),
            clients=self._table.records(self._is_kept),
            guesses=sorted(self._table.guesses),
            lost=self._reconciliation.lost or self._reconciliation.beyond,
            packet_id=self._continuity.last,
        )

    def load(
        self,
        record: DiscoveryRecord,
        *,
        away_ms: int | None,
        now_ms: Millis,
        outdated: bool = False,
    ) -> list[DiscoveryEffect]:
        """Continue where the previous process of this agent stopped.

        Args:
            record: The record that the previous process wrote last.
            away_ms: How long ago that was, or ``None`` when that process did not stop orderly: then
                lines may be missing from the record itself.
            now_ms: Our clock.
            outdated: The previous process could not write later changes. A count that agrees proves
                nothing then: as many subscriptions may have been added as removed.
        """
        assert self._first, "load comes before the first connection"
        clients = [client for client in record.clients if self._is_kept(client.id)]
        guesses = record.guesses
        if outdated:
            clients = [doubted(client) for client in clients if client.id != self._own_id]
            guesses = [(client.id, filter) for client in clients for filter in client.doubtful]
        self._table.load(clients, guesses)
        self._table.complete = record.complete
        self._regular.load(record.registered, now_ms=now_ms)
        self._reconciliation.lost = record.lost
        # A process that was killed received more than it wrote: no loss in the broker.
        self._continuity.last = 0 if away_ms is None else record.packet_id
        self._loaded = True
        self._uptime_s = record.uptime_s
        if away_ms is not None and away_ms >= 0:
            self._heard_ms = Millis(now_ms - away_ms)
            if record.trusted:  # and no line was missed since
                self._reconciliation.doubt = None
        return self._finish([], now_ms=now_ms)

    # Helpers

    def _is_kept(self, id: str) -> bool:
        """Whether the record keeps a client; of our own, only the one that receives the log."""
        return id == self._own_id or not id.startswith(OWN_PREFIX)

    def _doubt(self) -> str | None:
        """Why the table is not trusted; ``None`` also when we do not read the log."""
        return self._reconciliation.doubt if self._parameters.log_topics else None

    def _unknown(self) -> tuple[int, int]:
        """Subscriptions that no log line reported, and at most how many clients hold them."""
        reconciliation = self._reconciliation
        unknown = 0 if self._doubt() is None else reconciliation.unknown
        return unknown, reconciliation.unknown_clients if unknown else 0

    def _notice(self, name: str, level: str, **details: int | str) -> None:
        self._pending.append(Notice(name, level, details))

    def _finish(self, probes: list[ProbeCounts], *, now_ms: Millis) -> list[DiscoveryEffect]:
        """Widen or narrow our interest as the doubt requires; collect all changes."""
        effects: list[DiscoveryEffect] = list(probes) if self._parameters.log_topics else []
        doubt = self._doubt()
        widen = doubt is not None and self._parameters.widen
        if widen is not self.widened:
            self.widened = widen
            for filter in self._parameters.widen_to:
                self._interest.count(filter, 1 if widen else -1, by_client=False)
        effects += self._reconciliation.count_own(now_ms=now_ms)
        effects += self._reconciliation.call_roll(now_ms=now_ms)
        if doubt != self._reported_doubt:
            self._reported_doubt = doubt
            if doubt is None:
                self._notice("discovery.trusted", "info", filters=self.wanted_count)
            else:
                self._notice("discovery.untrusted", "warning", reason=doubt, widened=int(widen))
                unknown, clients = self._unknown()
                if unknown:
                    self._notice(
                        "discovery.unknown", "warning", subscriptions=unknown, clients=clients
                    )
        self._check_room()

        pending, self._pending = self._pending, []
        for notice in pending:
            effects += self._notices.limit(notice, now_ms=now_ms)
        return effects + self._interest.take()

    def _check_room(self) -> None:
        """Log a notice when the table fills, and when clients have more groups than their quota."""
        percent, beyond = self._table.full_percent, len(self._interest.beyond)
        if percent >= WARN_PERCENT and not self._warned_full:
            self._notice("discovery.table_filling", "warning", percent=percent)
        self._warned_full = percent >= WARN_PERCENT
        if beyond > self._reported_beyond:
            self._notice("share.beyond_quota", "warning", memberships=beyond)
        self._reported_beyond = beyond
