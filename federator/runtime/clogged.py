"""Neighbours to which more goes than gets through, and what to do about frames under custody.

The log of the origin has every such frame, and whoever misses one asks for it. On a clogged link a
frame that joins the queue is worse than useless: it arrives behind a gap, cannot be delivered, and
what would close the gap shares the link with it. With a queue always full, nothing at all would be
delivered while the link carries all it can.

So once a queue has refused something, frames under custody stay away from it, but for one now and
then, which tells the other end how far the origin is. What the other end then asks for has the link
nearly to itself, and comes in order. When it has all it knew of, and asks for nothing more, the
link is trusted with everything again.

Source: docs/guarantees.md, "Flow control".
"""

from dataclasses import dataclass

from federator.protocol.types import BrokerId

QUIET_S = 1.0
"""How long nothing must have waited, or been asked for again, before a link is trusted."""

SIGN_GAP_S = 2.0
"""Between two frames that go all the same; more than ``QUIET_S``."""


@dataclass(slots=True)
class _Clog:
    """A neighbour's: when it was last busy, and when a frame may go all the same."""

    busy_s: float
    next_sign_s: float = 0.0


class Clogged:
    """The neighbours whose queues were full lately."""

    def __init__(self) -> None:
        self._clogs: dict[BrokerId, _Clog] = {}

    def refused(self, neighbour: BrokerId, *, now_s: float) -> None:
        """The queue to ``neighbour`` had no room."""
        self._clogs.setdefault(neighbour, _Clog(now_s)).busy_s = now_s

    def repaired(self, neighbour: BrokerId, *, now_s: float) -> None:
        """Something that was asked for goes to ``neighbour``."""
        clog = self._clogs.get(neighbour)
        if clog is not None:
            clog.busy_s = now_s

    def keeps_out(self, neighbour: BrokerId, *, idle: bool, now_s: float) -> bool:
        """Whether a frame that is in its origin's log had better not go to ``neighbour`` now.

        Args:
            neighbour: The next hop.
            idle: Nothing waits to be sent there.
            now_s: Monotonic.
        """
        clog = self._clogs.get(neighbour)
        if clog is None:
            return False
        if not idle:
            clog.busy_s = now_s
            return True
        if now_s - clog.busy_s > QUIET_S:
            del self._clogs[neighbour]
            return False
        if now_s >= clog.next_sign_s:
            clog.next_sign_s = now_s + SIGN_GAP_S
            return False
        return True

    def __bool__(self) -> bool:
        return bool(self._clogs)
