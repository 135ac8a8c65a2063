"""Decisions that moved something, as logged and in ``/status``."""

from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from federator.planner.steering.moves import Decision, fullest, named
from federator.planner.steering.network import Ends
from federator.protocol.types import Millis

_log = structlog.get_logger()


@dataclass(slots=True)
class Logged:
    """A decision that moved something."""

    number: int  # of the first plan with it
    at_ms: int  # wall clock
    decision: Decision
    due_ms: Millis  # when it is measured
    measured: float | None = None  # load of the fullest link then

    def tell(self) -> None:
        """Log what moves."""
        decision = self.decision
        _log.info(
            "steer.decided",
            number=self.number,
            moves=len(decision.moves),
            trees=len(decision.trees),
            why=decision.why,
            fullest_before=fullest(decision.before),
            fullest_promised=fullest(decision.promised),
            cost_before=round(decision.cost),
            cost_promised=round(decision.cost_promised),
        )
        for move in decision.moves:
            _log.info(
                "steer.moved",
                origin=move.origin,
                filters=list(move.filters[:8]),
                rate=round(move.rate),
                by="tree" if move.tree is not None else "the ordinary way",
                why=move.why,
            )

    def tell_measured(self, shares: Mapping[Ends, float]) -> None:
        """Log how full links are now."""
        self.measured = fullest(shares)
        _log.info(
            "steer.measured",
            number=self.number,
            fullest=self.measured,
            fullest_promised=fullest(self.decision.promised),
            links=named(shares, shares),
        )
