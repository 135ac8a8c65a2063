"""Which of two agents at one broker takes what its clients publish, while one follows the other.

A broker that changes its role, from leaf to member or back, has two agents for a while: the
**former** one, which ends what it has begun, and its **successor**. The broker gives each
publication to both, to each at its own time, and exactly one of them has to carry it. Whose turn it
is when the first of them hears it decides, and the other is told the same when it hears it, later.

A publication has no name at its broker, so it is known by its content. Of equal ones the last that
the other one heard is taken for the same: whichever it was, as many are taken as were published.

Source: docs/hubs.md, "Moving".
"""

from collections import deque
from typing import Final

from federator.protocol.types import Millis

LATER_MS: Final = 10_000
"""How much later than one agent the other may hear the same publication."""

WAITING_MAX: Final = 65_536
"""Publications that the other agent has still to hear; of more, the oldest are forgotten."""


class Turn:
    """What one of the two agents asks."""

    def __init__(self, handover: "Handover", *, successor: bool) -> None:
        self._handover = handover
        self._successor = successor

    @property
    def is_mine(self) -> bool:
        """Whether this agent takes what is heard first now."""
        return self._handover.is_done is self._successor

    def takes(self, mark: int, now_ms: Millis) -> bool:
        """Whether this agent takes the publication that it hears now.

        Args:
            mark: Of its content (``stamps.content_mark``).
        """
        return self._handover.taken_by_successor(mark, self._successor, now_ms) is self._successor


class Handover:
    """Between two agents of one process.

    Args:
        is_done: It was done in an earlier life.

    Attributes:
        is_done: The successor takes what is heard first from now on.
    """

    def __init__(self, *, is_done: bool = False) -> None:
        self.is_done = is_done
        self.former = Turn(self, successor=False)
        self.successor = Turn(self, successor=True)
        self._waiting: dict[int, list[_Heard]] = {}  # by content, the last one last
        self._order: deque[tuple[int, _Heard]] = deque()

    def taken_by_successor(self, mark: int, by_successor: bool, now_ms: Millis) -> bool:
        """Whether the successor takes what one of the two hears now, and not the former agent."""
        self._expire(now_ms)
        waiting = self._waiting.setdefault(mark, [])
        if waiting and waiting[-1].by_successor is not by_successor:
            # All that wait were heard by one of the two alone.
            taken = waiting.pop().taken_by_successor
            if not waiting:
                del self._waiting[mark]
            return taken
        heard = _Heard(by_successor, self.is_done, now_ms)
        waiting.append(heard)
        self._order.append((mark, heard))
        return self.is_done

    def _expire(self, now_ms: Millis) -> None:
        order = self._order
        while order and (order[0][1].at_ms + LATER_MS < now_ms or len(order) > WAITING_MAX):
            mark, heard = order.popleft()
            if (waiting := self._waiting.get(mark)) and heard is waiting[0]:
                waiting.pop(0)
                if not waiting:
                    del self._waiting[mark]


class _Heard:
    """A publication that one of the two heard, and the other did not yet."""

    __slots__ = ("at_ms", "by_successor", "taken_by_successor")

    def __init__(self, by_successor: bool, taken_by_successor: bool, at_ms: Millis) -> None:
        self.by_successor = by_successor
        self.taken_by_successor = taken_by_successor
        self.at_ms = at_ms
