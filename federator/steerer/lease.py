"""Which steerer is in charge: of several the one that started first, while its plans are valid.

Sans I/O: both clocks are arguments. A ``PlanBook`` per broker decides which plan is valid there, as
in the broker's agent: so waiting steerers and agents agree.

Source: docs/steering.md.
"""

import contextlib
from collections.abc import Iterable
from typing import Final

from federator.errors import DecodeError
from federator.protocol.messages.steering import Plan, Tree
from federator.protocol.steering.plan_book import PlanBook, precedence
from federator.protocol.types import BrokerId, Millis, Now

NEVER_FIRST: Final = 2**53
"""The start time of steerers that only look: all others take precedence."""


class Lease:
    """The plans of other steerers.

    Args:
        name: Our name.
        since_ms: When we started, by our wall clock.
    """

    def __init__(self, name: str, *, since_ms: int) -> None:
        self.name, self.since_ms = name, since_ms
        self._books: dict[BrokerId, PlanBook] = {}  # of brokers with a plan
        self._former: dict[BrokerId, Plan] = {}  # the last plans that we waited for

    def is_ours(self, plan: Plan) -> bool:
        """Whether this run made ``plan``; other runs may have our name."""
        return precedence(plan) == (self.since_ms, self.name)

    def on_plan(self, plan: Plan, now: Now) -> None:
        """Note a believed plan, which is retained at its broker."""
        if self.is_ours(plan):
            return
        book = self._books.get(plan.broker) or PlanBook(plan.federation, plan.broker)
        with contextlib.suppress(DecodeError):
            book.take(plan, now)
            self._books[plan.broker] = book

    def on_cleared(self, broker: BrokerId) -> None:
        """Note that no plan is retained at ``broker`` any longer."""
        plan = self._before_us().get(broker)
        self._books.pop(broker, None)
        if plan is not None:
            self._former[broker] = plan

    def holder(self, *, now_ms: Millis) -> str | None:
        """The steerer that takes precedence over us; ``None`` if there is none."""
        for broker in [id for id, book in self._books.items() if book.holds(now_ms) is None]:
            self.on_cleared(broker)
        held_by = self.followed()
        return min(held_by, key=precedence).steerer if held_by else None

    def former(self) -> list[Plan]:
        """Remove and return the last plans of the steerers before us."""
        plans = [plan for _, plan in sorted(self._former.items())]
        self._former.clear()
        return plans

    def followed(self) -> list[Plan]:
        """The valid plans of steerers that take precedence over us."""
        return list(self._before_us().values())

    def _before_us(self) -> dict[BrokerId, Plan]:
        ours = self.since_ms, self.name
        plans = ((broker, book.plan) for broker, book in self._books.items())
        return {id: plan for id, plan in plans if plan is not None and precedence(plan) < ours}


def trees_of(plans: Iterable[Plan]) -> list[Tree]:
    """All trees of ``plans``, each once."""
    trees = {(tree.origin, tree.filters): tree for plan in plans for tree in plan.trees}
    return [tree for _, tree in sorted(trees.items())]
