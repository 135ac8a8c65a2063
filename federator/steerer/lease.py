"""Who steers: of several steerers the one that began first, for as long as its plans hold.

Pure: both clocks are arguments. As agents judge plans (``protocol.steering.plan_book``), so that
whoever waits and whoever obeys agree.

Source: docs/steering.md.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from federator.protocol.messages.steering import STEERING_VERSION, Plan, Tree
from federator.protocol.steering.plan_book import AHEAD_MS_MAX
from federator.protocol.types import BrokerId, Millis

NEVER_FIRST: Final = 2**53
"""When those began who only look: everybody else goes before."""


class _Heard(NamedTuple):
    plan: Plan
    until_ms: Millis


class Lease:
    """The plans of others.

    Args:
        name: Ours.
        since_ms: When we began, by our wall clock.
    """

    def __init__(self, name: str, *, since_ms: int) -> None:
        self.name, self.since_ms = name, since_ms
        self._heard: dict[BrokerId, _Heard] = {}  # the oldest steerer's that holds, at each broker
        self._former: dict[BrokerId, Plan] = {}  # the last that we waited for

    def is_ours(self, plan: Plan) -> bool:
        """Whether this run of ours made ``plan``; an earlier one, or another, may have our name."""
        return _order(plan) == (self.since_ms, self.name)

    def on_plan(self, plan: Plan, *, now_ms: Millis, wall_ms: int) -> None:
        """A plan that is believed is retained at its broker."""
        if self.is_ours(plan) or plan.version != STEERING_VERSION:
            return
        age_ms = wall_ms - plan.made_ms
        if age_ms >= plan.valid_ms or age_ms < -AHEAD_MS_MAX:
            return
        held = self._heard.get(plan.broker)
        if held is not None and now_ms < held.until_ms and _order(held.plan) < _order(plan):
            return
        until_ms = Millis(now_ms + plan.valid_ms - max(0, age_ms))
        self._heard[plan.broker] = _Heard(plan, until_ms)

    def on_cleared(self, broker: BrokerId) -> None:
        """Nothing is retained there any longer."""
        if (held := self._heard.pop(broker, None)) is not None and self._is_before_us(held.plan):
            self._former[broker] = held.plan

    def holder(self, *, now_ms: Millis) -> str | None:
        """Who steers before us; ``None``: nobody."""
        for broker, held in list(self._heard.items()):
            if now_ms >= held.until_ms:
                self.on_cleared(broker)
        held_by = [each.plan for each in self._heard.values() if self._is_before_us(each.plan)]
        return min(held_by, key=_order).steerer if held_by else None

    def inherited(self) -> list[Tree]:
        """The trees of whoever steered before us, once."""
        trees = {(tree.origin, tree.filters): tree for tree in _trees(self._former.values())}
        self._former.clear()
        return [tree for _, tree in sorted(trees.items())]

    def _is_before_us(self, plan: Plan) -> bool:
        return _order(plan) < (self.since_ms, self.name)


def _order(plan: Plan) -> tuple[int, str]:
    return plan.since_ms, plan.steerer


def _trees(plans: Iterable[Plan]) -> Iterable[Tree]:
    return (tree for plan in plans for tree in plan.trees)
