"""Processes large changes of filters in slices, so that one list does not block the others.

What a filter means to us follows from the present state of all lists, not from the change that made
us look at it. So it may be processed later, and twice; small changes overtake those that wait.

The lists themselves are updated at once. While more than ``BUSY_FILTERS`` filters of one list wait
here, no other large change of that list is accepted: it stays out of sync and we request it again.
So the lists bound what waits.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from itertools import islice
from typing import Final, get_args

from msgspec.structs import replace

from federator.protocol.routing.filter_lists import SMALL_CHANGE_MAX
from federator.protocol.signals import FiltersChanged
from federator.protocol.types import Millis

SLICE_GAP_MS = 10
BUSY_FILTERS = 32_768

FILTERS_CHANGED: Final = get_args(FiltersChanged)

_Rest = tuple[Iterator[str], bool]
"""Filters of one change, and whether the removed ones were given up."""


class Backlog:
    """Filters that wait to be processed."""

    def __init__(self) -> None:
        self.due_ms: Millis | None = None  # when ``next_slice`` has a slice to return
        self._waiting: OrderedDict[FiltersChanged, deque[_Rest]] = OrderedDict()  # by list
        self._filters: Counter[FiltersChanged] = Counter()  # number of waiting filters, by list

    def is_busy(self, change: FiltersChanged) -> bool:
        """Whether more than ``BUSY_FILTERS`` of the list that ``change`` names wait here."""
        return self._filters[change] > BUSY_FILTERS

    def postpones(self, change: FiltersChanged, *, now_ms: Millis) -> bool:
        """Queue ``change`` and return True if it is too large for one turn."""
        if len(change.filters) <= SMALL_CHANGE_MAX:
            return False
        list_ = replace(change, filters=frozenset(), gave_up=False)
        rest = (iter(tuple(change.filters)), change.gave_up)
        self._waiting.setdefault(list_, deque()).append(rest)
        self._filters[list_] += len(change.filters)
        if self.due_ms is None:
            self.due_ms = now_ms
        return True

    def next_slice(self, *, now_ms: Millis) -> FiltersChanged | None:
        """The next slice of a change, if one is due; the lists take turns."""
        if self.due_ms is None or now_ms < self.due_ms:
            return None
        list_, waiting = self._waiting.popitem(last=False)
        filters, gave_up = waiting[0]
        some = frozenset(islice(filters, SMALL_CHANGE_MAX))
        if len(some) < SMALL_CHANGE_MAX:
            waiting.popleft()
        self._filters[list_] -= len(some)
        if waiting:
            self._waiting[list_] = waiting
        else:
            del self._filters[list_]
        self.due_ms = Millis(now_ms + SLICE_GAP_MS) if self._waiting else None
        return replace(list_, filters=some, gave_up=gave_up)
