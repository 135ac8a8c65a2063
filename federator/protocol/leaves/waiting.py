"""What sides of a hub want otherwise and nobody has dealt with: in turn, a few filters of each.

Like the desks of an office: whoever comes with a thousand papers hands in a few and queues again,
and one who changes their mind while they queue takes a paper back. So what waits of a side is never
more than what it wants and what it wanted, and none waits behind all that another one wants.

Source: docs/hubs.md, "Who is told what".
"""

from collections.abc import Iterable
from itertools import islice
from typing import Generic, TypeVar

from federator.protocol.filters.cover import CoverChange

FILTERS_PER_TURN = 64

_Side = TypeVar("_Side")


class WaitingChanges(Generic[_Side]):
    """Changes by side, in the order in which each side's turn comes."""

    def __init__(self, filters_per_turn: int = FILTERS_PER_TURN) -> None:
        self._most = filters_per_turn
        self._wanted: dict[_Side, dict[str, bool]] = {}  # from now on, or no more

    def __bool__(self) -> bool:
        return bool(self._wanted)

    def add(self, side: _Side, added: Iterable[str], removed: Iterable[str]) -> None:
        """``side`` wants ``added``, which it did not want, and no more ``removed``, which it did.

        One in both is wanted as before.
        """
        waiting = self._wanted.setdefault(side, {})
        for filters, wanted in ((removed, False), (added, True)):
            for filter in filters:
                if waiting.get(filter) is (not wanted):
                    del waiting[filter]
                else:
                    waiting[filter] = wanted
        if not waiting:
            del self._wanted[side]

    def take(self) -> tuple[_Side, CoverChange]:
        """Whose turn it is, and the first of what that side wants otherwise."""
        side = next(iter(self._wanted))
        waiting = self._wanted.pop(side)
        first = list(islice(waiting.items(), self._most))
        for filter, _ in first:
            del waiting[filter]
        if waiting:
            self._wanted[side] = waiting  # last in the queue
        added = sorted(filter for filter, wanted in first if wanted)
        removed = sorted(filter for filter, wanted in first if not wanted)
        return side, CoverChange((*added,), (*removed,))
