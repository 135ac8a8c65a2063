"""Which of two agents at one broker carries a publication, while one succeeds the other.

A broker that changes its role, from leaf to member or back, has two agents for a while: the
**former** one, which finishes what it has begun, and its **successor**. The broker sends each
publication of its clients to both, to each at its own time, and exactly one of them has to take it.
Publications of others at QoS 0, which have no stamp, come to both as well, and one has to bring
them. Whichever is in charge when the first of them receives a publication decides, and the other
gets the same decision when it receives it, later.

Such a publication has no name, so it is recognised by its content. Of equal ones the last that the
other agent received is taken for the same: whichever it was, as many are carried as were published.

Source: docs/hubs.md, "Moving".
"""

from collections import deque
from typing import Final

from federator.protocol.types import Millis

LATER_MS: Final = 10_000
"""How much later than one agent the other may receive the same publication of a client."""

BROUGHT_LATER_MS: Final = 2_000
"""How much later than by one way a publication may come by the other."""

WAITING_MAX: Final = 65_536
"""Publications that the other agent has still to receive; of more, the oldest are forgotten."""


class Turn:
    """The view of one of the two agents."""

    def __init__(self, handover: "Handover", *, successor: bool) -> None:
        self._handover = handover
        self._successor = successor

    @property
    def is_mine(self) -> bool:
        """Whether this agent carries what is received first now."""
        return self._handover.is_done is self._successor

    def takes(self, mark: int, now_ms: Millis) -> bool:
        """Whether this agent takes a client's publication, which it receives now.

        Args:
            mark: Of its content (``stamps.content_mark``).
        """
        return self._carries(self._handover.taken, mark, now_ms)

    def brings(self, mark: int, now_ms: Millis) -> bool:
        """Whether this agent brings clients a publication of QoS 0, which it receives now."""
        return self._carries(self._handover.brought, mark, now_ms)

    def _carries(self, heard: "_HeardOnce", mark: int, now_ms: Millis) -> bool:
        by_successor, is_done = self._successor, self._handover.is_done
        return heard.is_successors(mark, by_successor, is_done, now_ms) is by_successor


class Handover:
    """Shared by the two agents, which are in one process.

    Args:
        is_done: The handover was done in an earlier run.

    Attributes:
        is_done: The successor carries what is received first from now on.
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
    """Publications that one of the two received, and the other not yet."""

    def __init__(self, later_ms: int) -> None:
        self._later_ms = later_ms
        self._waiting: dict[int, list[_Heard]] = {}  # by content, the last one last
        self._order: deque[tuple[int, _Heard]] = deque()

    def is_successors(self, mark: int, by_successor: bool, is_done: bool, now_ms: Millis) -> bool:
        """Whether the successor, not the former agent, carries what one of the two receives now."""
        self._expire(now_ms)
        waiting = self._waiting.setdefault(mark, [])
        if waiting and waiting[-1].by_successor is not by_successor:
            # All waiting ones were received by the same agent.
            successors = waiting.pop().is_successors
            if not waiting:
                del self._waiting[mark]
            return successors
        entry = _Heard(by_successor, is_done, now_ms)
        waiting.append(entry)
        self._order.append((mark, entry))
        return is_done

    def _expire(self, now_ms: Millis) -> None:
        order = self._order
        while order and (order[0][1].at_ms + self._later_ms < now_ms or len(order) > WAITING_MAX):
            mark, entry = order.popleft()
            if (waiting := self._waiting.get(mark)) and entry is waiting[0]:
                waiting.pop(0)
                if not waiting:
                    del self._waiting[mark]


class _Heard:
    """A publication, and which agent received it first."""

    __slots__ = ("at_ms", "by_successor", "is_successors")

    def __init__(self, by_successor: bool, is_successors: bool, at_ms: Millis) -> None:
        self.by_successor = by_successor
        self.is_successors = is_successors
        self.at_ms = at_ms
