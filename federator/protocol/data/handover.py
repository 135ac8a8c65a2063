"""Which of two agents at one broker carries a publication, while one follows the other.

A broker that changes its role, from leaf to member or back, has two agents for a while: the
**former** one, which ends what it has begun, and its **successor**. The broker gives each
publication of its clients to both, to each at its own time, and exactly one of them has to take it.
What others publish at QoS 0, which bears no stamp, comes to both as well, and one has to bring it.
Whose turn it is when the first of them hears it decides, and the other is told the same when it
hears it, later.

Such a publication has no name, so it is known by its content. Of equal ones the last that the other
one heard is taken for the same: whichever it was, as many are carried as were published.

Source: docs/hubs.md, "Moving".
"""

from collections import deque
from typing import Final

from federator.protocol.types import Millis

LATER_MS: Final = 10_000
"""How much later than one agent the other may hear the same publication of a client."""

BROUGHT_LATER_MS: Final = 2_000
"""How much later than by one way a publication may come by the other."""

WAITING_MAX: Final = 65_536
"""Publications that the other agent has still to hear; of more, the oldest are forgotten."""


class Turn:
    """What one of the two agents asks."""

    def __init__(self, handover: "Handover", *, successor: bool) -> None:
        self._handover = handover
        self._successor = successor

    @property
    def is_mine(self) -> bool:
        """Whether this agent carries what is heard first now."""
        return self._handover.is_done is self._successor

    def takes(self, mark: int, now_ms: Millis) -> bool:
        """Whether this agent takes a client's publication, which it hears now.

        Args:
            mark: Of its content (``stamps.content_mark``).
        """
        return self._carries(self._handover.taken, mark, now_ms)

    def brings(self, mark: int, now_ms: Millis) -> bool:
        """Whether this agent brings clients a publication of QoS 0, which comes to it now."""
        return self._carries(self._handover.brought, mark, now_ms)

    def _carries(self, heard: "_HeardOnce", mark: int, now_ms: Millis) -> bool:
        by_successor, is_done = self._successor, self._handover.is_done
        return heard.is_successors(mark, by_successor, is_done, now_ms) is by_successor


class Handover:
    """Between two agents of one process.

    Args:
        is_done: It was done in an earlier life.

    Attributes:
        is_done: The successor carries what is heard first from now on.
        taken: What clients published here.
        brought: What others published at QoS 0.
    """

    def __init__(self, *, is_done: bool = False) -> None:
        self.is_done = is_done
        self.former = Turn(self, successor=False)
        self.successor = Turn(self, successor=True)
        self.taken = _HeardOnce(LATER_MS)
        self.brought = _HeardOnce(BROUGHT_LATER_MS)


class _HeardOnce:
    """Publications that one of the two heard, and the other did not yet."""

    def __init__(self, later_ms: int) -> None:
        self._later_ms = later_ms
        self._waiting: dict[int, list[_Heard]] = {}  # by content, the last one last
        self._order: deque[tuple[int, _Heard]] = deque()

    def is_successors(self, mark: int, by_successor: bool, is_done: bool, now_ms: Millis) -> bool:
        """Whether the successor carries what one of the two hears now, and not the former agent."""
        self._expire(now_ms)
        waiting = self._waiting.setdefault(mark, [])
        if waiting and waiting[-1].by_successor is not by_successor:
            # All that wait were heard by one of the two alone.
            successors = waiting.pop().is_successors
            if not waiting:
                del self._waiting[mark]
            return successors
        heard = _Heard(by_successor, is_done, now_ms)
        waiting.append(heard)
        self._order.append((mark, heard))
        return is_done

    def _expire(self, now_ms: Millis) -> None:
        order = self._order
        while order and (order[0][1].at_ms + self._later_ms < now_ms or len(order) > WAITING_MAX):
            mark, heard = order.popleft()
            if (waiting := self._waiting.get(mark)) and heard is waiting[0]:
                waiting.pop(0)
                if not waiting:
                    del self._waiting[mark]


class _Heard:
    """A publication, and who heard it first."""

    __slots__ = ("at_ms", "by_successor", "is_successors")

    def __init__(self, by_successor: bool, is_successors: bool, at_ms: Millis) -> None:
        self.by_successor = by_successor
        self.is_successors = is_successors
        self.at_ms = at_ms
