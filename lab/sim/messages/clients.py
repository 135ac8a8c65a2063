"""Clients that subscribe: they connect, subscribe, acknowledge, and come back when thrown out.

Publishers need no object: a publication is a call. A subscriber is as faithful as a stock client
library: it reconnects with a pause, and subscribes again when its session is gone.

Source: OASIS MQTT 5.0, sections 3.1.2.4 and 4.4.
"""

import random
from dataclasses import dataclass, field

from lab.sim.agenda import Agenda
from lab.sim.messages.brokers import LOCAL_MS, MessageBroker
from lab.sim.messages.ledger import Ledger
from lab.sim.messages.sessions import Message, Session, control_client_id
from lab.sim.plan import SubscriberPlan

RECONNECT_MS = (100, 1_500)


@dataclass(eq=False, repr=False)
class Subscriber:
    """A running client."""

    plan: SubscriberPlan
    _broker: MessageBroker
    _agenda: Agenda
    _rng: random.Random
    _ledger: Ledger
    absences: int = 0
    acknowledges_after_ms: int = LOCAL_MS
    # What it held when an agent was last there to hear it subscribe, and when that was.
    heard: dict[str, int] = field(default_factory=dict)
    heard_ms: int = 0
    _session: Session | None = None
    _connection: int = 0
    _attempts: int = 0

    def __post_init__(self) -> None:
        self.filters = dict(self.plan.filters)  # what it wants, with the QoS it asks for

    @property
    def subscribed(self) -> bool:
        return self._session is not None and self._session.filters == self.filters

    def start(self) -> None:
        self._attempt(self._attempts)

    def leave(self) -> None:
        """Lose the connection, and do not come back until ``come_back``."""
        self.absences += 1
        self._attempts += 1
        if self._session is None:
            return
        session, self._session = self._session, None
        if not self.plan.persistent:
            self._ledger.withdraw(self.plan.id)
        self._broker.disconnect(session, self._connection, orderly=False)

    def come_back(self) -> None:
        self.absences -= 1
        if not self.absences:
            self._attempt(self._attempts)

    def broker_lost(self) -> None:
        self._session = None
        self._attempts += 1
        if not self.absences:
            self._try_again()

    def change_filters(self, filters: dict[str, int]) -> None:
        gone = [filter for filter in self.filters if filter not in filters]
        regraded = [f for f, qos in filters.items() if self.filters.get(f, qos) != qos]
        self.filters = dict(filters)
        self._ledger.withdraw(self.plan.id, [*gone, *regraded])
        self._ledger.waive(gone)
        if self._session is not None:
            self._agree(self._session)

    def agent_dies(self, saved_ms: int) -> None:
        """What the agent heard after ``saved_ms`` is forgotten."""
        if self.heard_ms >= saved_ms:
            self.heard = {}

    def _agree(self, session: Session) -> None:
        """Make the session hold what we want."""
        missing = {f: qos for f, qos in self.filters.items() if session.filters.get(f) != qos}
        surplus = tuple(filter for filter in session.filters if filter not in self.filters)
        listener = self._broker.sessions.get(control_client_id(self.plan.broker))
        listened = listener is not None and listener.receiver is not None
        if listened and (surplus or missing):
            kept = {f: qos for f, qos in self.heard.items() if f in self.filters}
            self.heard, self.heard_ms = kept | missing, self._agenda.now_ms
        if surplus:
            self._broker.unsubscribe(session, surplus)
        if missing:
            self._broker.subscribe(session, missing)

    def _try_again(self) -> None:
        when_ms = self._agenda.now_ms + self._rng.randint(*RECONNECT_MS)
        self._agenda.at(when_ms, self._attempt, self._attempts)

    def _attempt(self, ticket: int) -> None:
        if ticket != self._attempts or self.absences or self._session is not None:
            return
        if not self._broker.running:
            self._try_again()
            return
        plan, kept = self.plan, self.plan.persistent
        session, _ = self._broker.connect(
            plan.id, self._receive, clean=not kept, persistent=kept, protocol=plan.protocol
        )
        self._session, self._connection = session, session.connection
        self._agree(session)

    def _receive(self, session: Session, connection: int, packet_id: int, message: Message) -> None:
        self._ledger.received(self.plan.id, message)
        if packet_id:
            when_ms = self._agenda.now_ms + self.acknowledges_after_ms
            self._agenda.at(when_ms, self._broker.acknowledge, session, connection, packet_id)
