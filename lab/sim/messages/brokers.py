"""A stock broker as the daemon meets it: sessions, bounded queues, a log, numbers about itself.

It behaves like the measured facts about Mosquitto: twenty messages in flight per client and a
thousand that wait, then silence; QoS 0 is not kept for the absent; a kill loses everything that was
not saved; a log line waits twenty seconds; sessions that are resumed or restored give no line.

Source: measured on Mosquitto 2.0.
"""

from collections.abc import Mapping
from dataclasses import replace

from federator.protocol.discovery import VERSION_TOPIC
from federator.protocol.types import BrokerId
from lab.sim.agenda import Agenda
from lab.sim.messages.ledger import Ledger
from lab.sim.messages.sessions import IN_FLIGHT_MAX, Message, Receiver, Session
from lab.sim.plan import BrokerPlan

LOCAL_MS = 1  # one way between a client and its broker

LOG_LINE_KEPT_MS = 20_000
COUNT_KEPT_MS = 60_000  # a number about the broker is stored for so long (2.0.x)

WALL_CLOCK_AT_START_S = 1_700_000_000

_VERSION = Message(VERSION_TOPIC, 1, payload=b"mosquitto version 2.0.11", stored=True)
_LOG = "$SYS/broker/log/"
_COUNTS = (
    "$SYS/broker/clients/connected",
    "$SYS/broker/subscriptions/count",
    "$SYS/broker/shared_subscriptions/count",
)


class MessageBroker:
    """One broker's sessions."""

    def __init__(self, id: BrokerId, plan: BrokerPlan, agenda: Agenda, ledger: Ledger) -> None:
        self.id = id
        self.plan = plan
        self.sessions: dict[str, Session] = {}
        self.running = True
        self._agenda = agenda
        self._ledger = ledger
        self.database: dict[str, Session] = {}  # the sessions that a kill would leave
        self._retained: dict[str, Message] = {}
        self._saved_retained: dict[str, Message] = {}
        self._started_ms = 0
        self._numbers: dict[str, int] = {}
        self._stored: dict[str, Message] = {}
        self.life = 0  # grows when it starts and when it stops
        self.start()

    # --- its own life ---

    def start(self) -> None:
        self.running = True
        self.life += 1
        self._started_ms = self._agenda.now_ms
        self._numbers.clear()
        self._stored = {VERSION_TOPIC: _VERSION}
        self._retained = dict(self._saved_retained)
        self.sessions = {id: kept.at_rest() for id, kept in sorted(self.database.items())}
        now_ms = self._agenda.now_ms
        self._agenda.at(now_ms + self.plan.sys_interval_ms, self._tell_numbers, self.life)
        if self.plan.persistent:
            self._agenda.at(now_ms + self.plan.autosave_ms, self._autosave, self.life)

    def stop(self) -> None:
        self.running = False
        self.life += 1
        self.sessions = {}

    def save(self) -> None:
        self.database = {id: s.at_rest() for id, s in self.sessions.items() if s.persistent}
        self._saved_retained = dict(self._retained)

    def _autosave(self, life: int) -> None:
        if life == self.life:
            self.save()
            self._agenda.at(self._agenda.now_ms + self.plan.autosave_ms, self._autosave, life)

    # --- clients ---

    def connect(
        self,
        client_id: str,
        receiver: Receiver,
        *,
        clean: bool,
        persistent: bool,
        protocol: int = 4,
        expiry_ms: int | None = None,
        no_local: bool = False,
    ) -> tuple[Session, bool]:
        session = self.sessions.get(client_id)
        if session is not None and session.receiver is not None:
            self._log("E", f"Client {client_id} already connected, closing old connection.")
            session.receiver = None
        present = session is not None and not clean and session.persistent
        if session is None or not present:
            session = self.sessions[client_id] = Session(client_id, persistent)
        session.persistent, session.expiry_ms = persistent, expiry_ms
        session.no_local, session.receiver = no_local, receiver
        session.connection += 1
        version = {3: 1, 4: 2, 5: 5}[protocol]
        flags = f"p{version}, c{int(clean)}, k60"
        self._log("N", f"New client connected from 127.0.0.1:1883 as {client_id} ({flags}).")
        for packet_id, message in list(session.in_flight.items()):
            self._hand_over(session, packet_id, replace(message, duplicate=True))
        self._refill(session)
        return session, present

    def disconnect(self, session: Session, connection: int, *, orderly: bool) -> None:
        held = self.sessions.get(session.client_id) is session
        if not held or session.connection != connection or session.receiver is None:
            return
        session.receiver = None
        how = "disconnected." if orderly else "closed its connection."
        self._log("N", f"Client {session.client_id} {how}")
        if not session.persistent:
            del self.sessions[session.client_id]
        elif session.expiry_ms is not None:
            due_ms = self._agenda.now_ms + session.expiry_ms
            self._agenda.at(due_ms, self._expire, session, connection)

    def _expire(self, session: Session, connection: int) -> None:
        held = self.sessions.get(session.client_id) is session
        if held and session.connection == connection and session.receiver is None:
            del self.sessions[session.client_id]
            self._log("N", f"Expiring client {session.client_id} due to timeout.")

    def retains(self, topic: str) -> bool:
        return topic in self._retained

    def subscribe(self, session: Session, filters: Mapping[str, int]) -> None:
        """Grant subscriptions, and send what is stored."""
        for filter, qos in filters.items():
            session.filters[filter] = qos
            self._log("M/subscribe", f"{session.client_id} {qos} {filter}")
            stored = self._stored.get(filter) or self._retained.get(filter)
            if stored is not None and not _expired(stored, self._agenda.now_ms):
                self._offer(session, replace(stored, qos=min(qos, stored.qos)))

    def unsubscribe(self, session: Session, filters: tuple[str, ...]) -> None:
        for filter in filters:
            session.filters.pop(filter, None)
            self._log("M/unsubscribe", f"{session.client_id} {filter}")

    # --- messages ---

    def publish(self, publisher: str, message: Message) -> None:
        """Route a publication to every session that wants it: one copy each."""
        if message.retain:
            self._retained[message.topic] = replace(message, stored=True, retain=False)
        for session in list(self.sessions.values()):
            if session.no_local and session.client_id == publisher:
                continue
            wanted = session.qos_of(message.topic)
            if wanted is not None:
                lower = wanted < message.qos
                copy = replace(message, qos=wanted, retain=False) if lower else message
                self._offer(session, copy)

    def acknowledge(self, session: Session, connection: int, packet_id: int) -> None:
        if session.connection == connection and session.receiver is not None:
            session.in_flight.pop(packet_id, None)
            self._refill(session)

    def _offer(self, session: Session, message: Message) -> None:
        present = session.receiver is not None
        if not message.qos:
            if present:
                self._audit(session, message)
                self._hand_over(session, 0, message)
        elif present and len(session.in_flight) < IN_FLIGHT_MAX and not session.queue:
            self._audit(session, message)
            self._send(session, message)
        elif len(session.queue) < self.plan.queued_max + (0 if present else IN_FLIGHT_MAX):
            self._audit(session, message)
            session.queue.append(message)
            session.dropping = False
        else:
            self._ledger.dropped(session.client_id, message)
            if not session.dropping:
                session.dropping = True
                id = session.client_id
                self._log("N", f"Outgoing messages are being dropped for client {id}.")

    def _audit(self, session: Session, message: Message) -> None:
        if message.number >= 0:
            self._ledger.routed(self.id, session.client_id, message)

    def _refill(self, session: Session) -> None:
        queue, now_ms = session.queue, self._agenda.now_ms
        while queue and len(session.in_flight) < IN_FLIGHT_MAX:
            message = queue.popleft()
            if not _expired(message, now_ms):
                self._send(session, message)

    def _send(self, session: Session, message: Message) -> None:
        session.packet_ids += 1
        session.in_flight[session.packet_ids] = message
        self._hand_over(session, session.packet_ids, message)

    def _hand_over(self, session: Session, packet_id: int, message: Message) -> None:
        due_ms = self._agenda.now_ms + LOCAL_MS
        self._agenda.at(due_ms, self._arrive, session, session.connection, packet_id, message)

    def _arrive(self, session: Session, connection: int, packet_id: int, message: Message) -> None:
        if session.connection == connection and session.receiver is not None:
            session.receiver(session, connection, packet_id, message)

    # --- what it says about itself ---

    def _log(self, kind: str, text: str) -> None:
        if not self.plan.logs:
            return
        now_ms = self._agenda.now_ms
        line = f"{WALL_CLOCK_AT_START_S + now_ms // 1000}: {text}".encode()
        self._say(Message(_LOG + kind, 1, payload=line, expires_at_ms=now_ms + LOG_LINE_KEPT_MS))

    def _say(self, message: Message) -> None:
        for session in list(self.sessions.values()):
            if message.topic in session.filters:
                self._offer(session, message)

    def _tell_numbers(self, life: int) -> None:
        if life != self.life:
            return
        now_ms = self._agenda.now_ms
        uptime_s = (now_ms - self._started_ms) // 1000
        self._say(Message("$SYS/broker/uptime", 1, payload=b"%d seconds" % uptime_s))
        held = [filter for s in self.sessions.values() for filter in s.filters]
        shared = sum(filter.startswith("$share/") for filter in held)
        connected = sum(s.receiver is not None for s in self.sessions.values())
        for topic, number in zip(_COUNTS, (connected, len(held) - shared, shared), strict=True):
            if self._numbers.get(topic) != number:
                self._numbers[topic] = number
                payload, until_ms = b"%d" % number, now_ms + COUNT_KEPT_MS
                self._stored[topic] = Message(topic, 1, -1, payload, until_ms, stored=True)
                self._say(Message(topic, 1, payload=payload))
        self._agenda.at(now_ms + self.plan.sys_interval_ms, self._tell_numbers, life)


def _expired(message: Message, now_ms: int) -> bool:
    return message.expires_at_ms is not None and message.expires_at_ms <= now_ms
