"""What the controller decides: plans for every broker, and takeovers of those that are gone.

Who steps in is the broker most alike, then the least loaded, then the nearest. The paper says which
brokers may take over and not which of several does (ReRouting has no choice rule). Ours: behaviour
equivalence first, strong before weak before any; then load, then links between, then the smaller
id.

A decision is kept while it can be: a substitute is replaced only when it cannot serve any more. So
loads that change, controllers that change and brokers that come back move nobody; only a death or
an order to drain does.

Source: Chen 2020, Algorithm 3; docs/protocol.md 15.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter

import msgspec

from federator.protocol.controller.equivalence import Relation, relate
from federator.protocol.controller.flow_table import SessionFlowTable
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
"""Links between brokers that no known path joins."""


class Candidate(msgspec.Struct, frozen=True):
    """One broker that could step in for another."""

    id: BrokerId
    relation: Relation
    load: int  # its clients and their publications per second
    distance: int  # links between the two

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
    """Links from ``start`` to each broker that it reaches. One end's word makes a link."""
    pairs = {(a, b) for a, others in links.items() for b in others}
    return hops_from(near_of({start, *chain.from_iterable(pairs)}, pairs), start)


def rounded(amount: float) -> int:
    """``amount`` to one significant binary digit and a half, so that jitter is no news.

    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, ...
    """
    whole = int(amount)
    if whole < 4:
        return max(0, whole)
    step = 1 << (whole.bit_length() - 2)
    return whole // step * step


class Situation(msgspec.Struct, frozen=True):
    """The brokers as the controller sees them."""

    records: Mapping[BrokerId, BrokerRecord]  # the newest of each, those gone included
    fit: frozenset[BrokerId]  # those that may step in
    # Those that may go on if they have stepped in: also who is missed for a moment.
    serving: frozenset[BrokerId]
    leaving: frozenset[BrokerId]  # those whose clients must go elsewhere: gone or draining


@dataclass(slots=True)
class ControllerDuties:
    """What we decide while we are the controller."""

    term: int = 0  # the term in which we decide
    number: int = 0  # the number of our newest decision
    # Substitutes of each broker, best first.
    plans: dict[BrokerId, tuple[BrokerId, ...]] = field(default_factory=dict)
    # Takeovers in force, by the broker that is replaced.
    takeovers: dict[BrokerId, TakeoverRecord] = field(default_factory=dict)

    def begin_term(self, *, after: int) -> None:
        """Begin a term, newer than ours before and than ``after``, anybody else's newest."""
        self.term = min(TERM_MAX, max(self.term, after) + 1)
        self.number = 1

    def replan(self, situation: Situation, table: SessionFlowTable) -> None:
        """Choose substitutes for everyone anew."""
        plans = {
            broker: tuple(c.id for c in candidates(broker, situation, table)[:SUBSTITUTES_MAX])
            for broker in sorted(situation.records)
        }
        if plans != self.plans:
            self.plans = plans
            self.number += 1

    def decide(self, situation: Situation, table: SessionFlowTable) -> None:
        """Name a substitute for everyone who needs one, and keep those that still serve."""
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

    def records(self) -> list[ControllerRecord | PlanRecord | TakeoverRecord]:
        """What we announce."""
        return [
            ControllerRecord(self.term, self.number),
            *(PlanRecord(broker, plan) for broker, plan in self.plans.items()),
            *self.takeovers.values(),
        ]

    def _first_fit(
        self, broker: BrokerId, situation: Situation, table: SessionFlowTable
    ) -> BrokerId | None:
        """The best of those that the guide named while the broker lived, else the best of all."""
        for planned in self.plans.get(broker, ()):
            if planned in situation.fit and planned != broker:
                return planned
        found = candidates(broker, situation, table)
        return found[0].id if found else None


def candidates(broker: BrokerId, situation: Situation, table: SessionFlowTable) -> list[Candidate]:
    """The brokers that may step in for ``broker``, best first, with the reasons."""
    far = distances(broker, {id: record.links for id, record in situation.records.items()})
    found = []
    for id in situation.fit - {broker}:
        load = situation.records[id].load + situation.records[id].clients
        found.append(Candidate(id, relate(table, broker, id), load, far.get(id, FAR)))
    return sorted(found, key=attrgetter("rank"))
