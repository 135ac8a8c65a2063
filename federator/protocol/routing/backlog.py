"""Large changes of filters are looked at in slices, so that nobody's list holds up anything else.

What a filter is to us follows from what all lists say now, and not from the change that made us
look. So it may be looked at later, and twice; small changes pass those that wait.

The lists themselves follow at once. While more than ``BUSY_FILTERS`` of one wait here, no other
large change of it is taken: it stays out of step and is asked for again. So what waits is bounded
by the lists.
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
"""Filters of one change, and whether nobody wants those that are missing now."""


class Backlog:
    """Filters that wait to be looked at."""

    def __init__(self) -> None:
        self.due_ms: Millis | None = None  # when ``next_slice`` has something to say
        self._waiting: OrderedDict[FiltersChanged, deque[_Rest]] = OrderedDict()  # by list
        self._filters: Counter[FiltersChanged] = Counter()  # that wait, by list

    def is_busy(self, change: FiltersChanged) -> bool:
        """Whether very much of the list waits that ``change``, an empty one, is about."""
        return self._filters[change] > BUSY_FILTERS

    def postpones(self, change: FiltersChanged, *, now_ms: Millis) -> bool:
        """Whether ``change`` is too large for one turn: then it waits."""
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
        """The part of a change that is due now; those that wait take turns."""
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
