"""Which plan holds at a broker, and until when.

A plan is a lease: it holds for as long as it says, by the clock that tells less: from when it came,
and from when it was made. So neither a steerer that died nor a clock that is wrong leaves anything
behind. Of two who steer the one that began first goes on; the other is heard when that one's plan
has expired.

Source: docs/protocol.md 18.
"""

from typing import Final, NamedTuple

from federator.errors import DecodeError
from federator.protocol.messages.steering import STEERING_VERSION, Plan
from federator.protocol.types import BrokerId, Millis, Now

AHEAD_MS_MAX: Final = 60_000
"""How far a steerer's clock may be ahead of ours."""


class Held(NamedTuple):
    """A plan that holds."""

    plan: Plan
    until_ms: Millis  # monotonic


def precedence(plan: Plan) -> tuple[int, str]:
    """Of steerers whose plans hold, the one with the least of these goes on: who began first."""
    return plan.since_ms, plan.steerer


def until_ms(plan: Plan, now: Now) -> Millis:
    """Until when ``plan``, which comes now, holds (monotonic).

    Raises:
        DecodeError: It is not of this time.
    """
    age_ms = now.us // 1_000 - plan.made_ms
    if age_ms >= plan.valid_ms:
        raise DecodeError(f"made {age_ms} ms ago, it held for {plan.valid_ms}: see both clocks")
    if age_ms < -AHEAD_MS_MAX:
        raise DecodeError(f"made in {-age_ms} ms from now: see both clocks")
    return Millis(now.ms + plan.valid_ms - max(0, age_ms))


class PlanBook:
    """The plan of one broker.

    Args:
        federation: Ours.
        broker: Ours.
    """

    def __init__(self, federation: str, broker: BrokerId) -> None:
        self._federation, self._broker = federation, broker
        self._held: Held | None = None
        self._newest: dict[str, tuple[int, int]] = {}  # of who was believed last

    def holds(self, now_ms: Millis) -> Plan | None:
        held = self._held
        return held.plan if held is not None and now_ms < held.until_ms else None

    @property
    def due_ms(self) -> Millis | None:
        """When what holds will have expired."""
        return None if self._held is None else self._held.until_ms

    def take(self, plan: Plan, now: Now) -> None:
        """Believe ``plan`` from now on. That what holds is told again changes nothing.

        Raises:
            DecodeError: It is not for us, not of this time, or not of who steers; what held, holds.
        """
        if plan == self.holds(now.ms):  # a broker says what it retains to whoever returns
            return
        if plan.version != STEERING_VERSION:
            raise DecodeError(f"version {plan.version}, {STEERING_VERSION} wanted")
        if (plan.federation, plan.broker) != (self._federation, self._broker):
            raise DecodeError(f"it is for broker {plan.broker} of federation {plan.federation!r}")
        held = Held(plan, until_ms(plan, now))
        number = (plan.since_ms, plan.number)
        if number <= self._newest.get(plan.steerer, (-1, -1)):
            raise DecodeError(f"number {plan.number} of {plan.steerer} came before")
        holder = self.holds(now.ms)
        if (
            holder is not None
            and holder.steerer != plan.steerer
            and precedence(holder) < precedence(plan)
        ):
            raise DecodeError(f"{holder.steerer} steers, since before {plan.steerer}")
        self._newest = {plan.steerer: number}
        self._held = held

    def clear(self) -> None:
        """Whoever steered ended."""
        self._held = None
