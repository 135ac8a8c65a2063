"""Which brokers are present, missed, or gone.

A broker is present while it is announced: its record comes with its numbered announcements, and
goes when the last path to it does, or when it was silent for longer than its lifetime
(docs/protocol.md 6). That is the heartbeat. A broker without its record is **missed**; after
``gone_after_ms`` it is **gone**. If only the agent died, neighbours still hold connections to the
broker and report it (*orphans*); such a broker serves its clients, and counts as gone only after
``orphan_after_ms``: a restart of an agent should move no client.

Source: Chen 2020, 3.3.4 (heart beating); docs/protocol.md 15.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from federator.protocol.messages.broker_names import objection_to, sound_name
from federator.protocol.messages.guide import State
from federator.protocol.messages.session_records import BrokerRecord
from federator.protocol.timers import Timers
from federator.protocol.types import BrokerId, Millis


@dataclass(frozen=True, slots=True)
class PresenceParameters:
    """How long we wait for missed brokers."""

    gone_after_ms: Millis = Millis(1_000)  # a broker missed for so long is gone
    # The same, while the broker still answers its neighbours.
    orphan_after_ms: Millis = Millis(15_000)
    forget_ms: Millis = Millis(86_400_000)  # a broker gone for so long is forgotten
    brokers_max: int = 4_096  # brokers known; more are ignored


@dataclass(slots=True)
class Known:
    """One other broker."""

    record: BrokerRecord = field(default_factory=BrokerRecord)  # its newest record
    # Its records that are announced now; the broker is present when there is any.
    announced: set[BrokerRecord] = field(default_factory=set)
    missed_at_ms: Millis | None = None  # since when there is none; ``None`` while present
    seen: bool = False  # whether it was present since our start; otherwise only others reported it
    gone: bool = False  # whether it is considered gone for good

    @property
    def present(self) -> bool:
        """Whether the broker is announced."""
        return bool(self.announced)

    @property
    def name(self) -> str:
        """The operators' name of the broker; empty when they gave none or an invalid one."""
        return sound_name(self.record.name)

    @property
    def state(self) -> State:
        """The broker's state in the terms of the guide."""
        if self.gone:
            return "gone"
        return "draining" if self.record.draining else "up"

    @property
    def fit(self) -> bool:
        """Whether the broker may step in for another one."""
        return self.present and not self.record.draining


class BrokerPresence:
    """All other brokers that we know of."""

    def __init__(self, parameters: PresenceParameters) -> None:
        self.known: dict[BrokerId, Known] = {}
        self.names_refused = 0  # records with an invalid name
        self._parameters = parameters
        self._timers: Timers[tuple[str, BrokerId]] = Timers()

    def __iter__(self) -> Iterator[tuple[BrokerId, Known]]:
        return iter(sorted(self.known.items()))

    def next_deadline_ms(self) -> Millis | None:
        """When ``on_deadline`` is due."""
        return self._timers.next_deadline_ms()

    def is_missed(self, id: BrokerId) -> bool:
        """Whether the broker is known, but not present now."""
        broker = self.known.get(id)
        return broker is not None and not broker.present

    def was_seen(self, id: BrokerId) -> bool:
        """Whether the broker was present since our start."""
        broker = self.known.get(id)
        return broker is not None and broker.seen

    def collected_by(self, id: BrokerId) -> frozenset[str] | None:
        """The filters for which the broker announces that it only collects; ``None``: not present.

        While two records are announced, the filters that both name.
        """
        broker = self.known.get(id)
        if broker is None or not broker.announced:
            return None
        return frozenset.intersection(*(frozenset(record.collects) for record in broker.announced))

    def come(self, id: BrokerId, record: BrokerRecord) -> bool:
        """Note that ``record`` is announced; return whether the broker was not present before."""
        broker = self._record_of(id)
        if broker is None:
            return False
        came = not broker.present
        self.names_refused += bool(objection_to(record.name))
        broker.announced.add(record)
        broker.record = record
        broker.seen = True
        if came:
            broker.missed_at_ms, broker.gone = None, False
            self._timers.clear(("gone", id))
            self._timers.clear(("forget", id))
        return came

    def go(self, id: BrokerId, record: BrokerRecord, *, now_ms: Millis) -> None:
        """Note that ``record`` is no longer announced."""
        broker = self.known.get(id)
        if broker is None or record not in broker.announced:
            return
        broker.announced.discard(record)
        if broker.present:
            if record == broker.record:
                broker.record = min(broker.announced, key=repr)
        else:
            self._miss(id, broker, now_ms)

    def hear_of(self, id: BrokerId, *, now_ms: Millis) -> None:
        """Miss ``id`` from now on if it is unknown: another broker reports that it is gone."""
        if id not in self.known:
            broker = self._record_of(id)
            if broker is not None:
                self._miss(id, broker, now_ms)

    def start_over(self, *, now_ms: Millis) -> None:
        """Restart the time for which each missed broker is missed: we were offline."""
        for id, broker in self:
            if not broker.present:
                broker.gone = False
                self._timers.clear(("forget", id))
                self._miss(id, broker, now_ms)

    def on_deadline(self, orphans: set[BrokerId], *, now_ms: Millis) -> set[BrokerId]:
        """Give up brokers that are missed for too long; return those that were just forgotten.

        ``orphans`` answer a neighbour, whether or not their agents run.
        """
        forgotten: set[BrokerId] = set()
        for kind, id in self._timers.pop_due(now_ms):
            broker = self.known[id]
            assert broker.missed_at_ms is not None, "who is there has no deadline"
            if kind == "forget":
                del self.known[id]
                forgotten.add(id)
                continue
            # Only the agent died: the broker serves its clients, so they are moved much later.
            patience_ms = self._parameters.orphan_after_ms
            if id in orphans and now_ms - broker.missed_at_ms < patience_ms:
                again_ms = now_ms + self._parameters.gone_after_ms
                last_ms = broker.missed_at_ms + patience_ms
                self._timers.set(("gone", id), Millis(min(again_ms, last_ms)))
                continue
            broker.gone = True
            self._timers.set(("forget", id), Millis(now_ms + self._parameters.forget_ms))
        return forgotten

    def _miss(self, id: BrokerId, presence: Known, now_ms: Millis) -> None:
        presence.missed_at_ms = now_ms
        self._timers.set(("gone", id), Millis(now_ms + self._parameters.gone_after_ms))

    def _record_of(self, id: BrokerId) -> Known | None:
        broker = self.known.get(id)
        if broker is None and len(self.known) < self._parameters.brokers_max:
            broker = self.known[id] = Known()
        return broker
