"""Follows the edge part of a steerer's plan: what to keep there, which demand only collects.

Both withhold publications from subscribers, so both need the operator's permission beside the plan,
and end with the plan. Neither has an effect alone: an agent that keeps withholds only what others
announce to only collect, and an agent that announces this misses only what others keep.

Source: docs/protocol.md 18.8.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from federator.protocol.effects import Notice
from federator.protocol.forwarding.counters import DataCounters
from federator.protocol.forwarding.keeping import POLICIES, KeepPolicy
from federator.protocol.messages.session_records import may_collect
from federator.protocol.messages.steering import KeptLoad, Plan
from federator.protocol.types import Millis, Now

WINDOWS: Final = 5
NOT_ALLOWED: Final = "its operator does not let a steerer place topics: [rules] placed"
IN_DOUBT: Final = "it is not known for sure what clients want here"
TOO_MANY: Final = "the filters to collect are too many or too long"


@dataclass(kw_only=True, eq=False)
class EdgeFollower:
    """Follows plans at the edge of one broker.

    Attributes:
        keep: Makes the data plane keep by this policy; ``None``: keep nothing.
        collect: Announces that our clients only collect what matches exactly these filters.
        asks_straight: Whether our clients' demand for a filter is announced as a destination.
        asks_in_mesh: Whether it is announced for a mesh.
        obstacle: Why we can never announce to collect, whatever the plans; empty: we can.
        allowed: Whether the operator lets a steerer place topics.
        in_doubt: Whether our clients' demand is not known for sure.
    """

    keep: Callable[[KeepPolicy | None, Now], None]
    collect: Callable[[frozenset[str]], None]
    note: Callable[[Notice], None]
    asks_straight: Callable[[str], bool]
    asks_in_mesh: Callable[[str], bool]
    obstacle: str = ""
    allowed: bool = False
    in_doubt: bool = False

    def __post_init__(self) -> None:
        self.policy: KeepPolicy | None = None  # in force
        self.collects: frozenset[str] = frozenset()  # announced
        self._plan: Plan | None = None
        self._complained = False

    def follow(self, plan: Plan | None, now: Now) -> None:
        """Follow ``plan`` from now on; ``None``: no plan is valid."""
        self._plan = plan
        self._apply(now)

    def allow(self, allowed: bool, now: Now) -> None:
        """Store whether the operator lets a steerer place topics."""
        self.allowed = allowed
        self._apply(now)

    def doubt(self, in_doubt: bool, now: Now) -> None:
        """Store whether our clients' demand is not known for sure."""
        if in_doubt != self.in_doubt:
            self.in_doubt = in_doubt
            self._apply(now)

    def why_not(self) -> str:
        """Why the plan is not followed at the edge, or only in part; empty: it is followed."""
        plan = self._plan
        if plan is None or not (plan.keep or plan.collects):
            return ""
        if not self.allowed:
            return NOT_ALLOWED
        if plan.keep and plan.keep not in POLICIES:
            return f"the policy {plan.keep!r} is unknown to this release"
        if not plan.collects:
            return ""
        if not may_collect(plan.collects):
            return TOO_MANY
        in_mesh = sorted(filter(self.asks_in_mesh, plan.collects))
        if in_mesh and not self.obstacle:
            return f"{in_mesh[0][:80]} is asked for in a mesh: [routing] filters"
        return self.obstacle or (IN_DOUBT if self.in_doubt else "")

    def report(self, publications: float, rate: float) -> KeptLoad | None:
        """The report to the steerer, with the recently kept publications/s and bit/s."""
        plan = self._plan
        if plan is None or not (plan.keep or plan.collects):
            return None
        collected = tuple(sorted(filter(self.asks_straight, self.collects)))
        return KeptLoad(self.allowed, publications, rate, collected, self.why_not())

    def _apply(self, now: Now) -> None:
        plan = self._plan if self.allowed else None
        policy = None if plan is None else POLICIES.get(plan.keep)
        if policy is not self.policy:
            self.policy = policy
            self.keep(policy, now)
            self.note(Notice("steer.keeps", details={"policy": policy or "nothing"}))
        collects: frozenset[str] = frozenset()
        can = not (self.in_doubt or self.obstacle)
        if plan is not None and can and may_collect(plan.collects):
            collects = frozenset(plan.collects)
        if collects != self.collects:
            self.collects = collects
            self.collect(collects)
            self.note(Notice("steer.collects", details={"filters": len(collects)}))
        self._complain()

    def _complain(self) -> None:
        """Log once what a steerer may not do here."""
        why = self.why_not()
        is_obstacle = why in (NOT_ALLOWED, TOO_MANY) or bool(why and why == self.obstacle)
        if is_obstacle and not self._complained and self._plan is not None:
            details: dict[str, int | str] = {"steerer": self._plan.steerer, "reason": why}
            self.note(Notice("steer.not_allowed", "warning", details))
        self._complained = is_obstacle


class KeptMeter:
    """How much is kept at the edge: the mean of the last ``WINDOWS`` samples of the counters."""

    def __init__(self, counters: DataCounters) -> None:
        self._counters = counters
        self._looks: deque[tuple[Millis, int, int]] = deque(maxlen=WINDOWS + 1)

    def look(self, now_ms: Millis) -> None:
        """Sample the counters; call every two seconds or so."""
        self._looks.append((now_ms, self._counters.kept, self._counters.kept_bytes))

    def rates(self) -> tuple[float, float]:
        """Kept publications per second, and bit/s."""
        if len(self._looks) < 2:
            return 0.0, 0.0
        (since_ms, count, size), (until_ms, count_now, size_now) = self._looks[0], self._looks[-1]
        span_s = max(1, until_ms - since_ms) / 1_000
        return (count_now - count) / span_s, 8 * (size_now - size) / span_s
