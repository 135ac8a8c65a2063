"""Which of two agents at one broker carries a publication, while one succeeds the other.

A broker that changes its role, from leaf to member or back, has two agents for a while: the
**former** one, which finishes what it has begun, and its **successor**. The broker sends each
publication of its clients to both, to each at its own time, and exactly one of them has to take it.
Publications of others at QoS 0, which have no stamp, come to both as well, and one has to bring
them. Whichever is in charge when the first of them receives a publication decides, and the other
gets the same decision when it receives it, later.

Source: docs/hubs.md, "Moving".
"""

from typing import Final

from federator.protocol.leaves.twins import Twins
from federator.protocol.types import Millis

LATER_MS: Final = 10_000
"""How much later than one agent the other may receive the same publication of a client."""

BROUGHT_LATER_MS: Final = 2_000
"""How much later than by one way a publication may come by the other."""


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

    def _carries(self, twins: Twins[bool], mark: int, now_ms: Millis) -> bool:
        """Whether the successor carries it is decided once, and it is this agent's turn."""
        is_done = self._handover.is_done
        return twins.decide(mark, self._successor, is_done, now_ms) is self._successor


class Handover:
    """Shared by the two agents, which are in one process.

    Args:
        is_done: The handover was done in an earlier run.

    Attributes:
        is_done: The successor carries what is received first from now on.
        taken: Whether the successor takes what clients published here.
        brought: Whether it brings what others published at QoS 0.
    """

    def __init__(self, *, is_done: bool = False) -> None:
        self.is_done = is_done
        self.former = Turn(self, successor=False)
        self.successor = Turn(self, successor=True)
        self.taken: Twins[bool] = Twins(LATER_MS, agents=2)
        self.brought: Twins[bool] = Twins(BROUGHT_LATER_MS, agents=2)
