"""Which plan is valid at a broker, and until when.

A plan is a lease: it is valid for as long as it states, by the earlier of two clocks: from when it
arrived, and from when it was made. So neither a dead steerer nor a wrong clock leaves anything
behind. Of two steerers the one that began first continues; a plan of the other is accepted when
that one's plan has expired.

Source: docs/protocol.md 18.
"""

from typing import Final

from federator.errors import DecodeError
from federator.protocol.messages.steering import STEERING_VERSION, Plan
from federator.protocol.types import BrokerId, Millis, Now

AHEAD_MS_MAX: Final = 60_000
"""How far a steerer's clock may be ahead of ours."""


def precedence(plan: Plan) -> tuple[int, str]:
    """Orders steerers with valid plans: the least, which began first, continues."""
    return plan.since_ms, plan.steerer


class PlanBook:
    """The plan of one broker.

    Args:
        federation: Ours.
        broker: Ours.

    Attributes:
        plan: The plan accepted last, even if it has expired; ``None``: none was, or it was ended.
    """

    def __init__(self, federation: str, broker: BrokerId) -> None:
        self._federation, self._broker = federation, broker
        self.plan: Plan | None = None
        self._until_ms = Millis(0)  # monotonic
        # Number of the plan accepted last, by steerer.
        self._newest: dict[str, tuple[int, int]] = {}

    def holds(self, now_ms: Millis) -> Plan | None:
        return self.plan if now_ms < self._until_ms else None

    @property
    def due_ms(self) -> Millis | None:
        """When the plan expires."""
        return None if self.plan is None else self._until_ms

    def take(self, plan: Plan, now: Now) -> None:
        """Accept ``plan``. Receiving the present plan again changes nothing.

        Raises:
            DecodeError: It is not for us, expired, from the future, or not from the steerer
                whose plan is valid. The present plan stays valid.
        """
        holder = self.holds(now.ms)
        # A broker resends what it retains to a client that reconnects.
        if plan == holder:
            return
        if plan.version != STEERING_VERSION:
            raise DecodeError(f"version {plan.version}, {STEERING_VERSION} wanted")
        if (plan.federation, plan.broker) != (self._federation, self._broker):
            raise DecodeError(f"it is for broker {plan.broker} of federation {plan.federation!r}")
        age_ms = now.us // 1_000 - plan.made_ms
        if age_ms >= plan.valid_ms:
            raise DecodeError(f"made {age_ms} ms ago, it held for {plan.valid_ms}: see both clocks")
        if age_ms < -AHEAD_MS_MAX:
            raise DecodeError(f"made in {-age_ms} ms from now: see both clocks")
        number = (plan.since_ms, plan.number)
        if number <= self._newest.get(plan.steerer, (-1, -1)):
            raise DecodeError(f"number {plan.number} of {plan.steerer} came before")
        if (
            holder is not None
            and holder.steerer != plan.steerer
            and precedence(holder) < precedence(plan)
        ):
            raise DecodeError(f"{holder.steerer} steers, since before {plan.steerer}")
        self._newest = {plan.steerer: number}
        self.plan = plan
        self._until_ms = Millis(now.ms + plan.valid_ms - max(0, age_ms))

    def clear(self) -> None:
        """Forget the plan: its steerer ended it."""
        self.plan = None
