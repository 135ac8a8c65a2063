"""Changes of demand at a hub that wait to be processed: sides take turns, a few filters each.

Like the desks of an office: a customer with a thousand papers hands in a few and queues again, and
one that reconsiders while queueing takes a paper back. So what waits for a side is never more than
its present and its former demand, and no side waits behind all changes of another.

Source: docs/hubs.md, "Who is told what".
"""

from collections.abc import Iterable
from itertools import islice
from typing import Generic, TypeVar

from federator.protocol.filters.cover import CoverChange

FILTERS_PER_TURN = 64

_Side = TypeVar("_Side")


class WaitingChanges(Generic[_Side]):
    """Changes by side, in the order of the sides' turns."""

    def __init__(self, filters_per_turn: int = FILTERS_PER_TURN) -> None:
        self._most = filters_per_turn
        # True: wanted from now on; False: no longer wanted
        self._wanted: dict[_Side, dict[str, bool]] = {}

    def __bool__(self) -> bool:
        return bool(self._wanted)

    def add(self, side: _Side, added: Iterable[str], removed: Iterable[str]) -> None:
        """Add to a side's changes: ``added`` were not wanted before, ``removed`` were.

        A filter in both stays wanted.
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
        """The next side, and the first of its changes."""
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
