"""The controller's decisions: plans for every broker, and takeovers of those that are gone.

The substitute is the most alike broker, then the least loaded, then the nearest. The paper says
which brokers may take over, but not how to choose among several (ReRouting has no choice rule).
Ours: behaviour equivalence first, strong before weak before any; then load, then links between,
then the smaller id.

A decision is kept while possible: a substitute is replaced only when it can no longer serve. So
changes of load, changes of controller and returning brokers move no client; only a death or an
order to drain does. And a takeover outlives the controller that decided it: it stays in force, for
every agent that received it, until the present controller names another substitute or the broker is
back. So neither the death of a controller nor the return of an old one moves a client.

Source: Chen 2020, Algorithm 3; docs/protocol.md 15.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter

import msgspec

from federator.protocol.controller.flow_table import Relation, SessionFlowTable, relate
from federator.protocol.messages.guide import SUBSTITUTES_MAX
from federator.protocol.messages.session_records import (
    TERM_MAX,
    BrokerRecord,
    ControllerRecord,
    PlanRecord,
    TakeoverRecord,
)
from federator.protocol.topology.graph import hops_from, near_of
from federator.protocol.types import BrokerId

FAR = 2**31
"""The distance between brokers that no known path joins, in links."""

Decision = ControllerRecord | PlanRecord | TakeoverRecord
"""Records that controllers announce."""


class Candidate(msgspec.Struct, frozen=True):
    """One broker that could step in for another."""

    id: BrokerId
    relation: Relation
    load: int  # clients plus publications per second
    distance: int  # links between the two brokers

    @property
    def rank(self) -> tuple[int, int, int, BrokerId]:
        """The smallest is chosen."""
        return (self.relation.degree, self.load, self.distance, self.id)

    @property
    def why(self) -> str:
        """The reasons, for operators."""
        far = "unknown" if self.distance >= FAR else str(self.distance)
        return f"{self.relation.likeness.word} equivalence, load {self.load}, distance {far}"


def distances(start: BrokerId, links: Mapping[BrokerId, Sequence[BrokerId]]) -> dict[BrokerId, int]:
    """The number of links from ``start`` to each broker in reach. One end's report makes a link."""
    pairs = {(a, b) for a, others in links.items() for b in others}
    return hops_from(near_of({start, *chain.from_iterable(pairs)}, pairs), start)


def rounded(amount: float) -> int:
    """Round ``amount`` down to two significant bits, so that jitter causes no new announcement."""
    whole = int(amount)
    if whole < 4:
        return max(0, whole)
    step = 1 << (whole.bit_length() - 2)
    return whole // step * step


class Situation(msgspec.Struct, frozen=True):
    """All brokers as the controller sees them."""

    records: Mapping[BrokerId, BrokerRecord]  # the newest record of each, gone ones included
    fit: frozenset[BrokerId]  # brokers that may step in
    # Brokers that may stay substitutes: also those missed for a moment.
    serving: frozenset[BrokerId]
    leaving: frozenset[BrokerId]  # brokers that clients must leave: gone or draining


@dataclass(slots=True)
class ControllerDuties:
    """Our decisions while we are the controller."""

    term: int = 0  # the term in which we decide
    number: int = 0  # the number of our newest decision
    # Substitutes of each broker, best first.
    plans: dict[BrokerId, tuple[BrokerId, ...]] = field(default_factory=dict)
    # Takeovers in force, by the replaced broker.
    takeovers: dict[BrokerId, TakeoverRecord] = field(default_factory=dict)

    def begin_term(self, *, after: int) -> None:
        """Begin a term, newer than our own before and than ``after``, the newest of all others."""
        self.term = min(TERM_MAX, max(self.term, after) + 1)
        self.number = 1

    def replan(self, situation: Situation, table: SessionFlowTable) -> None:
        """Choose the substitutes of all brokers anew."""
        plans = {
            broker: tuple(c.id for c in candidates(broker, situation, table)[:SUBSTITUTES_MAX])
            for broker in sorted(situation.records)
        }
        if plans != self.plans:
            self.plans = plans
            self.number += 1

    def decide(self, situation: Situation, table: SessionFlowTable) -> None:
        """Name a substitute for every leaving broker, and keep those that still serve."""
        takeovers = {
            broker: made
            for broker, made in self.takeovers.items()
            if broker in situation.leaving and made.substitute in situation.serving
        }
        changed = takeovers.keys() != self.takeovers.keys()
        for broker in sorted(situation.leaving - takeovers.keys()):
            substitute = self._first_fit(broker, situation, table)
            if substitute is not None:
                number = self.number + 1
                takeovers[broker] = TakeoverRecord(broker, substitute, self.term, number)
                changed = True
        self.takeovers = takeovers
        self.number += changed

    def records(self) -> list[Decision]:
        """The records that we announce."""
        return [
            ControllerRecord(self.term, self.number),
            *(PlanRecord(broker, plan) for broker, plan in self.plans.items()),
            *self.takeovers.values(),
        ]

    def _first_fit(
        self, broker: BrokerId, situation: Situation, table: SessionFlowTable
    ) -> BrokerId | None:
        """The first fit substitute in the plan from the broker's lifetime, else the best of all."""
        for planned in self.plans.get(broker, ()):
            if planned in situation.fit and planned != broker:
                return planned
        ranked = candidates(broker, situation, table)
        return ranked[0].id if ranked else None


def candidates(broker: BrokerId, situation: Situation, table: SessionFlowTable) -> list[Candidate]:
    """The brokers that may step in for ``broker``, best first, with the reasons."""
    far = distances(broker, {id: record.links for id, record in situation.records.items()})
    ranked = []
    for id in situation.fit - {broker}:
        load = situation.records[id].load + situation.records[id].clients
        ranked.append(Candidate(id, relate(table, broker, id), load, far.get(id, FAR)))
    return sorted(ranked, key=attrgetter("rank"))


@dataclass(frozen=True, slots=True)
class Statement:
    """What one broker announces now, as the present controller or a deposed one."""

    records: set[Decision] = field(default_factory=set)

    @property
    def claim(self) -> ControllerRecord | None:
        """The newest claim of the broker to be the controller."""
        claims = (r for r in self.records if isinstance(r, ControllerRecord))
        return max(claims, key=lambda o: (o.term, o.number), default=None)

    @property
    def plans(self) -> list[PlanRecord]:
        """The plans for brokers, in order."""
        plans = (r for r in self.records if isinstance(r, PlanRecord))
        return sorted(plans, key=lambda p: (p.broker, p.substitutes))

    @property
    def takeovers(self) -> list[TakeoverRecord]:
        """The takeovers named, the oldest first."""
        takeovers = (r for r in self.records if isinstance(r, TakeoverRecord))
        return sorted(takeovers, key=lambda t: (t.term, t.number, t.broker, t.substitute))


class StandingPlans:
    """What every broker announces as a controller."""

    def __init__(self) -> None:
        # The greatest term in which each broker was the controller, us included.
        self.terms: dict[BrokerId, int] = {}
        self._statements: dict[BrokerId, Statement] = {}

    def of(self, speaker: BrokerId) -> Statement:
        """What ``speaker`` announces now."""
        return self._statements.get(speaker, Statement())

    def come(self, speaker: BrokerId, record: Decision) -> None:
        """Note that ``speaker`` announces ``record``."""
        self._statements.setdefault(speaker, Statement()).records.add(record)
        if isinstance(record, ControllerRecord):
            self.note_term(speaker, record.term)

    def note_term(self, holder: BrokerId, term: int) -> None:
        """Note that ``holder`` was the controller in ``term``."""
        self.terms[holder] = max(term, self.terms.get(holder, 0))

    def greatest_other_term(self, controller: BrokerId) -> int:
        """The greatest term of any broker but ``controller``."""
        return max((t for holder, t in self.terms.items() if holder != controller), default=0)

    def go(self, speaker: BrokerId, record: Decision) -> None:
        """Note that ``speaker`` no longer announces ``record``."""
        statement = self.of(speaker)
        statement.records.discard(record)
        if not statement.records:
            self._statements.pop(speaker, None)

    def claims(self, *, besides: BrokerId | None) -> list[TakeoverRecord]:
        """Takeovers that brokers other than ``besides`` still name, the newest first."""
        all_ = {
            t for speaker, w in self._statements.items() if speaker != besides for t in w.takeovers
        }
        return sorted(all_, key=lambda t: (-t.term, -t.number, t.broker, t.substitute))
