"""Which steerer is in charge: of several the one that started first, while its plans are valid.

Sans I/O: both clocks are arguments. Plans are compared as agents do (``protocol.steering.
plan_book``), so that waiting steerers and agents agree.

Source: docs/steering.md.
"""

from typing import Final

from federator.errors import DecodeError
from federator.protocol.messages.steering import STEERING_VERSION, Plan
from federator.protocol.steering.plan_book import Held, precedence, until_ms
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
        self._valid_plans: dict[
            BrokerId, Held
        ] = {}  # per broker, the valid plan of the oldest steerer
        self._former: dict[BrokerId, Plan] = {}  # the last plans that we waited for

    def is_ours(self, plan: Plan) -> bool:
        """Whether this run made ``plan``; other runs may have our name."""
        return precedence(plan) == (self.since_ms, self.name)

    def on_plan(self, plan: Plan, *, now_ms: Millis, wall_ms: int) -> None:
        """Note a believed plan, which is retained at its broker."""
        if self.is_ours(plan) or plan.version != STEERING_VERSION:
            return
        try:
            new = Held(plan, until_ms(plan, Now(now_ms, wall_ms * 1_000)))
        except DecodeError:
            return
        held = self._valid_plans.get(plan.broker)
        if held is None or now_ms >= held.until_ms or precedence(held.plan) >= precedence(plan):
            self._valid_plans[plan.broker] = new

    def on_cleared(self, broker: BrokerId) -> None:
        """Note that no plan is retained at ``broker`` any longer."""
        if (held := self._valid_plans.pop(broker, None)) is not None and self._is_before_us(
            held.plan
        ):
            self._former[broker] = held.plan

    def holder(self, *, now_ms: Millis) -> str | None:
        """The steerer that takes precedence over us; ``None`` if there is none."""
        for broker, held in list(self._valid_plans.items()):
            if now_ms >= held.until_ms:
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
        return [held.plan for held in self._valid_plans.values() if self._is_before_us(held.plan)]

    def _is_before_us(self, plan: Plan) -> bool:
        return precedence(plan) < (self.since_ms, self.name)
