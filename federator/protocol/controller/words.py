"""What others said as controllers, and which of it is in force.

A takeover outlives the controller that decided it: it stays in force, for everyone who heard of
it, until the controller of the day names another substitute or its broker is back. So neither the
death of a controller nor the return of an old one moves anybody.

Source: design section 6; docs/protocol.md section 15.
"""

from dataclasses import dataclass, field

from federator.protocol.controller.records import OfficeRecord, PlanRecord, TakeoverRecord
from federator.protocol.types import BrokerId


@dataclass(slots=True)
class Words:
    """What one broker announces now, as the controller or as one that was deposed."""

    offices: set[OfficeRecord] = field(default_factory=set)
    plans: set[PlanRecord] = field(default_factory=set)
    takeovers: set[TakeoverRecord] = field(default_factory=set)

    @property
    def empty(self) -> bool:
        """It says nothing."""
        return not (self.offices or self.plans or self.takeovers)

    @property
    def office(self) -> OfficeRecord | None:
        """Its newest claim to be the controller."""
        return max(self.offices, key=lambda o: (o.term, o.number), default=None)


Word = OfficeRecord | PlanRecord | TakeoverRecord


class Heard:
    """Everybody's words.

    Attributes:
        terms: The greatest term in which each was ever in office, us included.
    """

    def __init__(self) -> None:
        self.terms: dict[BrokerId, int] = {}
        self._words: dict[BrokerId, Words] = {}

    def of(self, speaker: BrokerId) -> Words:
        """What ``speaker`` says now."""
        return self._words.get(speaker, Words())

    def come(self, speaker: BrokerId, word: Word) -> None:
        """``speaker`` says ``word``."""
        words = self._words.setdefault(speaker, Words())
        match word:
            case OfficeRecord():
                words.offices.add(word)
                self.note_term(speaker, word.term)
            case PlanRecord():
                words.plans.add(word)
            case TakeoverRecord():
                words.takeovers.add(word)

    def note_term(self, holder: BrokerId, term: int) -> None:
        """``holder`` was in office in ``term``."""
        self.terms[holder] = max(term, self.terms.get(holder, 0))

    def rival_of(self, controller: BrokerId) -> int:
        """The greatest term of anybody else."""
        return max((t for holder, t in self.terms.items() if holder != controller), default=0)

    def go(self, speaker: BrokerId, word: Word) -> None:
        """``speaker`` no longer says ``word``."""
        words = self._words.get(speaker)
        if words is None:
            return
        match word:
            case OfficeRecord():
                words.offices.discard(word)
            case PlanRecord():
                words.plans.discard(word)
            case TakeoverRecord():
                words.takeovers.discard(word)
        if words.empty:
            del self._words[speaker]

    def claims(self, *, besides: BrokerId | None) -> list[TakeoverRecord]:
        """Takeovers that anybody but ``besides`` still names, the newest first."""
        all_ = {t for speaker, w in self._words.items() if speaker != besides for t in w.takeovers}
        return sorted(all_, key=lambda t: (-t.term, -t.number, t.broker, t.substitute))
