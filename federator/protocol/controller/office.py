"""The controller's desk: plans for every broker, and takeovers of those that are gone.

A decision is kept while it can be: a substitute is replaced only when it cannot serve any more. So
loads that change, controllers that change and brokers that come back move nobody; only a death or
an order to drain does.

Source: papers/topic-routing-and-rerouting.txt Algorithm 3; design section 6; docs/protocol.md
section 15.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from federator.protocol.controller.choice import FAR, Candidate, best_first, distances
from federator.protocol.controller.equivalence import relate
from federator.protocol.controller.flow_table import SessionFlowTable
from federator.protocol.controller.records import (
    TERM_MAX,
    BrokerRecord,
    OfficeRecord,
    PlanRecord,
    TakeoverRecord,
)
from federator.protocol.guide import SUBSTITUTES_MAX
from federator.protocol.types import BrokerId


@dataclass(frozen=True, slots=True)
class Situation:
    """The brokers as the controller sees them.

    Attributes:
        records: The newest of each, those gone included.
        fit: Those that may step in.
        serving: Those that may go on if they have stepped in: also who is missed for a moment.
        leaving: Those whose clients must go elsewhere: gone or draining.
    """

    records: Mapping[BrokerId, BrokerRecord]
    fit: frozenset[BrokerId]
    serving: frozenset[BrokerId]
    leaving: frozenset[BrokerId]


@dataclass(slots=True)
class Office:
    """What we decide while we are the controller.

    Attributes:
        term: Of this time in office.
        number: Of our newest word.
        plans: Substitutes of each broker, best first.
        takeovers: In force.
    """

    term: int = 0
    number: int = 0
    plans: dict[BrokerId, tuple[BrokerId, ...]] = field(default_factory=dict)
    takeovers: dict[BrokerId, TakeoverRecord] = field(default_factory=dict)

    def take(self, *, rival: int) -> None:
        """Begin a term, newer than ours before and than any of somebody else."""
        self.term = min(TERM_MAX, max(self.term, rival) + 1)
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

    def words(self) -> list[OfficeRecord | PlanRecord | TakeoverRecord]:
        """What we announce."""
        return [
            OfficeRecord(self.term, self.number),
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
    """Everyone who may step in for ``broker``, best first, with the reasons."""
    far = distances(broker, {id: record.links for id, record in situation.records.items()})
    return best_first(
        [
            Candidate(
                id,
                relate(table, broker, id),
                situation.records[id].load + situation.records[id].clients,
                far.get(id, FAR),
            )
            for id in sorted(situation.fit)
            if id != broker
        ]
    )
