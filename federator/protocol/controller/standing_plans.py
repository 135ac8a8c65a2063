"""What others said as controllers, and which of it is in force.

A takeover outlives the controller that decided it: it stays in force, for everyone who heard of
it, until the controller of the day names another substitute or its broker is back. So neither the
death of a controller nor the return of an old one moves anybody.

Source: docs/protocol.md 15.
"""

from dataclasses import dataclass, field

from federator.protocol.messages.session_records import ControllerRecord, PlanRecord, TakeoverRecord
from federator.protocol.types import BrokerId

Announced = ControllerRecord | PlanRecord | TakeoverRecord


@dataclass(frozen=True, slots=True)
class Statement:
    """What one broker announces now, as the controller or as one that was deposed."""

    records: set[Announced] = field(default_factory=set)

    @property
    def claim(self) -> ControllerRecord | None:
        """The newest claim of the broker to be the controller."""
        claims = (r for r in self.records if isinstance(r, ControllerRecord))
        return max(claims, key=lambda o: (o.term, o.number), default=None)

    @property
    def plans(self) -> list[PlanRecord]:
        """Its plans for brokers, in order."""
        plans = (r for r in self.records if isinstance(r, PlanRecord))
        return sorted(plans, key=lambda p: (p.broker, p.substitutes))

    @property
    def takeovers(self) -> list[TakeoverRecord]:
        """The takeovers that it names, the oldest first."""
        takeovers = (r for r in self.records if isinstance(r, TakeoverRecord))
        return sorted(takeovers, key=lambda t: (t.term, t.number, t.broker, t.substitute))


class StandingPlans:
    """What every broker says as a controller."""

    def __init__(self) -> None:
        # The greatest term in which each was ever the controller, us included.
        self.terms: dict[BrokerId, int] = {}
        self._statements: dict[BrokerId, Statement] = {}

    def of(self, speaker: BrokerId) -> Statement:
        """What ``speaker`` announces now."""
        return self._statements.get(speaker, Statement())

    def come(self, speaker: BrokerId, record: Announced) -> None:
        """Note that ``speaker`` announces ``record``."""
        self._statements.setdefault(speaker, Statement()).records.add(record)
        if isinstance(record, ControllerRecord):
            self.note_term(speaker, record.term)

    def note_term(self, holder: BrokerId, term: int) -> None:
        """Note that ``holder`` was the controller in ``term``."""
        self.terms[holder] = max(term, self.terms.get(holder, 0))

    def greatest_other_term(self, controller: BrokerId) -> int:
        """The greatest term of anybody but ``controller``."""
        return max((t for holder, t in self.terms.items() if holder != controller), default=0)

    def go(self, speaker: BrokerId, record: Announced) -> None:
        """Note that ``speaker`` no longer announces ``record``."""
        said = self.of(speaker)
        said.records.discard(record)
        if not said.records:
            self._statements.pop(speaker, None)

    def claims(self, *, besides: BrokerId | None) -> list[TakeoverRecord]:
        """Takeovers that anybody but ``besides`` still names, the newest first."""
        all_ = {
            t for speaker, w in self._statements.items() if speaker != besides for t in w.takeovers
        }
        return sorted(all_, key=lambda t: (-t.term, -t.number, t.broker, t.substitute))
