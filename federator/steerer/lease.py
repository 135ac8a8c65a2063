"""Who steers: of several steerers the one that began first, for as long as its plans hold.

Pure: both clocks are arguments. As agents judge plans (``protocol.steering.plan_book``), so that
whoever waits and whoever obeys agree.

Source: docs/steering.md.
"""

from typing import Final

from federator.errors import DecodeError
from federator.protocol.messages.steering import STEERING_VERSION, Plan
from federator.protocol.steering.plan_book import Held, precedence, until_ms
from federator.protocol.types import BrokerId, Millis, Now

NEVER_FIRST: Final = 2**53
"""When those began who only look: everybody else goes before."""


class Lease:
    """The plans of others.

    Args:
        name: Ours.
        since_ms: When we began, by our wall clock.
    """

    def __init__(self, name: str, *, since_ms: int) -> None:
        self.name, self.since_ms = name, since_ms
        self._heard: dict[BrokerId, Held] = {}  # the oldest steerer's that holds, at each broker
        self._former: dict[BrokerId, Plan] = {}  # the last that we waited for

    def is_ours(self, plan: Plan) -> bool:
        """Whether this run of ours made ``plan``; an earlier one, or another, may have our name."""
        return precedence(plan) == (self.since_ms, self.name)

    def on_plan(self, plan: Plan, *, now_ms: Millis, wall_ms: int) -> None:
        """A plan that is believed is retained at its broker."""
        if self.is_ours(plan) or plan.version != STEERING_VERSION:
            return
        try:
            heard = Held(plan, until_ms(plan, Now(now_ms, wall_ms * 1_000)))
        except DecodeError:
            return
        held = self._heard.get(plan.broker)
        if held is None or now_ms >= held.until_ms or precedence(held.plan) >= precedence(plan):
            self._heard[plan.broker] = heard

    def on_cleared(self, broker: BrokerId) -> None:
        """Nothing is retained there any longer."""
        if (held := self._heard.pop(broker, None)) is not None and self._is_before_us(held.plan):
            self._former[broker] = held.plan

    def holder(self, *, now_ms: Millis) -> str | None:
        """Who steers before us; ``None``: nobody."""
        for broker, held in list(self._heard.items()):
            if now_ms >= held.until_ms:
                self.on_cleared(broker)
        held_by = self.followed()
        return min(held_by, key=precedence).steerer if held_by else None

    def former(self) -> list[Plan]:
        """The last plans of whoever steered before us, once."""
        plans = [plan for _, plan in sorted(self._former.items())]
        self._former.clear()
        return plans

    def followed(self) -> list[Plan]:
        """The plans that hold of whoever steers before us."""
        return [each.plan for each in self._heard.values() if self._is_before_us(each.plan)]

    def _is_before_us(self, plan: Plan) -> bool:
        return precedence(plan) < (self.since_ms, self.name)
