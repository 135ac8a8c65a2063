"""Deadlines by key: a heap that ignores deadlines that were moved or cancelled.

Machines may set a deadline for a key any number of times; only the last one counts. Keys due at the
same instant are returned in the order of the keys, so a run depends on nothing else.
"""

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

from federator.protocol.types import Millis

K = TypeVar("K", bound=Hashable)


def earliest(*deadlines_ms: Millis | None) -> Millis | None:
    """The first of some deadlines, if any is pending. Called after every event: no generator."""
    first: Millis | None = None
    for at_ms in deadlines_ms:
        if at_ms is not None and (first is None or at_ms < first):
            first = at_ms
    return first


class Timers(Generic[K]):
    """Pending deadlines. Keys must be mutually comparable."""

    def __init__(self) -> None:
        self._at: dict[K, Millis] = {}
        self._heap: list[tuple[Millis, K]] = []

    def set(self, key: K, at_ms: Millis) -> None:
        """Set the deadline of ``key`` to ``at_ms``, in place of an earlier setting."""
        if self._at.get(key) == at_ms:
            return
        self._at[key] = at_ms
        heapq.heappush(self._heap, (at_ms, key))

    def set_sooner(self, key: K, at_ms: Millis) -> None:
        """Set the deadline of ``key`` to ``at_ms``, unless it is due earlier already."""
        due_ms = self._at.get(key)
        if due_ms is None or at_ms < due_ms:
            self.set(key, at_ms)

    def clear(self, key: K) -> None:
        """Cancel the deadline of ``key``."""
        self._at.pop(key, None)

    def __contains__(self, key: K) -> bool:
        return key in self._at

    def next_deadline_ms(self) -> Millis | None:
        heap = self._heap
        while heap:
            at_ms, key = heap[0]
            if self._at.get(key) == at_ms:
                return at_ms
            heapq.heappop(heap)
        return None

    def pop_due(self, now_ms: Millis) -> list[K]:
        """Remove and return every key due by ``now_ms``, earliest first."""
        if not self._heap or self._heap[0][0] > now_ms:  # called for all timers, at every deadline
            return []
        due: list[K] = []
        while (at_ms := self.next_deadline_ms()) is not None and at_ms <= now_ms:
            _, key = heapq.heappop(self._heap)
            del self._at[key]
            due.append(key)
        return due
