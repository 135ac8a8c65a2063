"""Follows a steerer's plans: accepts them, lets them expire, and reports torn trees.

Source: docs/protocol.md 18.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from federator.errors import DecodeError
from federator.protocol.effects import Notice
from federator.protocol.forwarding.trees import TreeTable
from federator.protocol.messages.control import TreeTorn
from federator.protocol.messages.steering import Plan, Tree
from federator.protocol.rate_limiter import RateLimiter
from federator.protocol.steering.plan_book import PlanBook
from federator.protocol.timers import earliest
from federator.protocol.types import BrokerId, Millis, Now

TELL_GAP_MS: Final = Millis(100)
"""Between two reports to a neighbour that a tree is torn here: frames keep coming for a while."""

TOLD_MAX: Final = 4_096
COMPLAINT_GAP_MS: Final = Millis(60_000)


class Ways(Protocol):
    """The data plane, as far as it follows planned trees."""

    @property
    def trees(self) -> TreeTable:
        """The trees that it follows."""

    def follow_trees(self, trees: Sequence[Tree], now: Now) -> None:
        """Send flows over exactly these trees.

        Raises:
            ValueError: One is no tree, or does not lead through us.
        """

    def trees_changed(self, now: Now) -> None:
        """Note that some trees became invalid, or valid again."""


class PlanFollower:
    """Follows plans for one broker.

    Args:
        tell: Sends a message to a neighbour.
        note: Receives notices for the operator.
        follow_edge: Receives the valid plan, for its edge part; ``None``: no plan is valid.
    """

    def __init__(
        self,
        book: PlanBook,
        ways: Ways,
        self_id: BrokerId,
        tell: Callable[[BrokerId, TreeTorn], None],
        note: Callable[[Notice], None],
        follow_edge: Callable[[Plan | None, Now], None] = lambda plan, now: None,
    ) -> None:
        self.refused = 0
        self._book, self._ways, self._self_id = book, ways, self_id
        self._tell, self._note, self._follow_edge = tell, note, follow_edge
        self._reported: RateLimiter[tuple[bytes, BrokerId]]
        self._reported = RateLimiter(gap_ms=TELL_GAP_MS, keys_max=TOLD_MAX)
        self._complaints: RateLimiter[str] = RateLimiter(gap_ms=COMPLAINT_GAP_MS, keys_max=16)
        self._follows = False  # whether we follow a plan

    @property
    def due_ms(self) -> Millis | None:
        """When ``on_time`` is due."""
        return earliest(self._book.due_ms, self._ways.trees.due_ms)

    def plan(self, now_ms: Millis) -> Plan | None:
        """The plan that is valid."""
        return self._book.holds(now_ms)

    def on_plan(self, plan: Plan | None, now: Now) -> None:
        """Handle a plan retained on our broker; ``None``: it was deleted."""
        if plan is None:
            self._end("taken away", now)
            return
        try:
            self._book.take(plan, now)
        except DecodeError as error:
            self.refuse(str(error), now)
            return
        try:
            self._ways.follow_trees(plan.trees, now)
        except ValueError as error:
            self._end("malformed", now)
            self.refuse(f"a tree of {plan.steerer}: {error}", now)
            return
        if not self._follows:
            self._note(Notice("steer.followed", details={"steerer": plan.steerer}))
        self._follows = True
        self._follow_edge(plan, now)

    def refuse(self, why: str, now: Now) -> None:
        """Count and report a plan that is rejected."""
        self.refused += 1
        if self._complaints.allow("plan", now.ms):
            self._note(Notice("steer.refused", "warning", {"reason": why}))

    def on_time(self, now: Now) -> None:
        """Forget what has expired."""
        if self._follows and self._book.holds(now.ms) is None:
            self._end("expired", now)
        if self._ways.trees.mend(now.ms):
            self._ways.trees_changed(now)

    def on_torn(self, tree: bytes, sender: BrokerId, now: Now) -> None:
        """A frame came from ``sender`` over a tree that is torn here: report it."""
        if self._reported.allow((tree, sender), now.ms):
            self._tell(sender, TreeTorn(self._self_id, tree))

    def on_message(self, message: TreeTorn, now: Now) -> None:
        """A neighbour reports a torn tree: mark it torn here in that direction."""
        if not self._ways.trees.tear(message.tree, message.sender, now.ms):
            return
        self._ways.trees_changed(now)
        branch = self._ways.trees.branch(message.tree)
        if branch is not None and branch.parent is not None:
            self.on_torn(message.tree, branch.parent, now)

    def _end(self, why: str, now: Now) -> None:
        self._book.clear()
        self._ways.follow_trees((), now)
        self._follow_edge(None, now)
        if self._follows:
            self._note(Notice("steer.ended", details={"reason": why}))
        self._follows = False
