"""Who is there, who is missed, and who counts as gone.

Being there is being announced: a broker's record comes with its numbered announcements, and goes
when the last way to it does, or when it was silent for longer than its lifetime (docs/protocol.md
6). That is the heartbeat. A broker whose record went is **missed**; after ``gone_after_ms`` it is
**gone**. Where only the agent died, neighbours still hold connections to the broker and say so
(*orphans*); such a broker serves its clients, and counts as gone only after ``orphan_after_ms``: an
agent that is restarted should move nobody.

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
    """How patient we are."""

    gone_after_ms: Millis = Millis(1_000)  # missed for so long, a broker is gone
    # The same, while its broker still answers its neighbours.
    orphan_after_ms: Millis = Millis(15_000)
    forget_ms: Millis = Millis(86_400_000)  # gone for so long, nothing is remembered of it
    brokers_max: int = 4_096  # brokers known; more are ignored


@dataclass(slots=True)
class Known:
    """One other broker."""

    record: BrokerRecord = field(default_factory=BrokerRecord)  # its newest record
    # Its records that are announced now; it is there when any is.
    announced: set[BrokerRecord] = field(default_factory=set)
    missed_at_ms: Millis | None = None  # since when none is; ``None`` while it is there
    seen: bool = False  # whether it was there in our time; otherwise others told us of it
    gone: bool = False  # whether it is missed for good, as far as we know

    @property
    def present(self) -> bool:
        """Whether the broker is announced."""
        return bool(self.announced)

    @property
    def name(self) -> str:
        """What its operators call the broker; empty when they did not say, or what is no name."""
        return sound_name(self.record.name)

    @property
    def state(self) -> State:
        """The state of the broker as the guide says it."""
        if self.gone:
            return "gone"
        return "draining" if self.record.draining else "up"

    @property
    def fit(self) -> bool:
        """Whether the broker may step in for another one."""
        return self.present and not self.record.draining


class BrokerPresence:
    """All other brokers heard of."""

    def __init__(self, parameters: PresenceParameters) -> None:
        self.known: dict[BrokerId, Known] = {}
        self.names_refused = 0  # records that came with what is no name
        self._parameters = parameters
        self._timers: Timers[tuple[str, BrokerId]] = Timers()

    def __iter__(self) -> Iterator[tuple[BrokerId, Known]]:
        return iter(sorted(self.known.items()))

    def next_deadline_ms(self) -> Millis | None:
        """When ``on_deadline`` is due."""
        return self._timers.next_deadline_ms()

    def is_missed(self, id: BrokerId) -> bool:
        """Whether we heard of the broker, and it is not there now."""
        known = self.known.get(id)
        return known is not None and not known.present

    def was_seen(self, id: BrokerId) -> bool:
        """Whether the broker was there in our time."""
        known = self.known.get(id)
        return known is not None and known.seen

    def collected_by(self, id: BrokerId) -> frozenset[str] | None:
        """Of which filters the broker says that it only collects; ``None``: it is not there.

        While it seems to say two things, what both say.
        """
        known = self.known.get(id)
        if known is None or not known.announced:
            return None
        return frozenset.intersection(*(frozenset(each.collects) for each in known.announced))

    def come(self, id: BrokerId, record: BrokerRecord) -> bool:
        """Note that ``record`` is announced; tells whether the broker was not there before."""
        known = self._known(id)
        if known is None:
            return False
        came = not known.present
        self.names_refused += bool(objection_to(record.name))
        known.announced.add(record)
        known.record = record
        known.seen = True
        if came:
            known.missed_at_ms, known.gone = None, False
            self._timers.clear(("gone", id))
            self._timers.clear(("forget", id))
        return came

    def go(self, id: BrokerId, record: BrokerRecord, *, now_ms: Millis) -> None:
        """Note that ``record`` is announced no longer."""
        known = self.known.get(id)
        if known is None or record not in known.announced:
            return
        known.announced.discard(record)
        if known.present:
            if record == known.record:
                known.record = min(known.announced, key=repr)
        else:
            self._miss(id, known, now_ms)

    def hear_of(self, id: BrokerId, *, now_ms: Millis) -> None:
        """Miss ``id`` from now on if we never heard of it: somebody says that it is gone."""
        if id not in self.known:
            known = self._known(id)
            if known is not None:
                self._miss(id, known, now_ms)

    def start_over(self, *, now_ms: Millis) -> None:
        """Count from now on for how long each missed broker is missed: we were deaf."""
        for id, known in self:
            if not known.present:
                known.gone = False
                self._timers.clear(("forget", id))
                self._miss(id, known, now_ms)

    def on_deadline(self, orphans: set[BrokerId], *, now_ms: Millis) -> set[BrokerId]:
        """Give up brokers that are missed for too long; return those that we just forgot.

        ``orphans`` answer somebody, whatever their agents do.
        """
        forgotten: set[BrokerId] = set()
        for kind, id in self._timers.pop_due(now_ms):
            known = self.known[id]
            assert known.missed_at_ms is not None, "who is there has no deadline"
            if kind == "forget":
                del self.known[id]
                forgotten.add(id)
                continue
            # Only the agent died: the broker serves its clients, so they are moved much later.
            patience_ms = self._parameters.orphan_after_ms
            if id in orphans and now_ms - known.missed_at_ms < patience_ms:
                again_ms = now_ms + self._parameters.gone_after_ms
                last_ms = known.missed_at_ms + patience_ms
                self._timers.set(("gone", id), Millis(min(again_ms, last_ms)))
                continue
            known.gone = True
            self._timers.set(("forget", id), Millis(now_ms + self._parameters.forget_ms))
        return forgotten

    def _miss(self, id: BrokerId, known: Known, now_ms: Millis) -> None:
        known.missed_at_ms = now_ms
        self._timers.set(("gone", id), Millis(now_ms + self._parameters.gone_after_ms))

    def _known(self, id: BrokerId) -> Known | None:
        known = self.known.get(id)
        if known is None and len(self.known) < self._parameters.brokers_max:
            known = self.known[id] = Known()
        return known
