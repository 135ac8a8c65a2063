"""Recognises a publication that several agents at one broker receive, each at its own time.

The broker sends what its clients publish to each of these agents. Such a publication has no name,
so it is recognised by its content. The agent that receives it first decides something about it, and
the others get the same decision when they receive it, a little later.

Of equal publications an agent gets the decision about the newest that it has not received yet, or
about the oldest. By the newest, one that an agent never receives takes nothing from those that
follow. By the oldest, an agent that always lags behind gets the same decision about each one.

Source: docs/hubs.md.
"""

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from federator.protocol.types import Millis

TWINS_MAX: Final = 65_536
"""Publications that other agents may still receive; of more, the oldest are forgotten."""

V = TypeVar("V")


@dataclass(slots=True, eq=False)
class _Decided(Generic[V]):
    mark: int
    value: V
    at_ms: Millis
    receivers: set[Hashable]


class Twins(Generic[V]):
    """Decisions about what was received lately.

    Args:
        later_ms: How much later than the first another agent may receive the same publication.
        agents: How many there are, if that is known: a decision that all have is forgotten at once.
        oldest: Whether an agent gets the decision about the oldest of equal publications.
    """

    def __init__(self, later_ms: int, *, agents: int | None = None, oldest: bool = False) -> None:
        self._later_ms = later_ms
        self._agents = agents
        self._oldest = oldest
        self._alike: dict[int, list[_Decided[V]]] = {}  # by content, the newest last
        self._order: deque[_Decided[V]] = deque()

    def decide(self, mark: int, agent: Hashable, value: V, now_ms: Millis) -> V:
        """The decision about what ``agent`` receives now: ``value``, unless others were first.

        Args:
            mark: Of its content (``stamps.content_mark``).
        """
        self._expire(now_ms)
        alike = self._alike.setdefault(mark, [])
        places = range(len(alike))
        for at in places if self._oldest else reversed(places):
            if agent not in (entry := alike[at]).receivers:
                entry.receivers.add(agent)
                if len(entry.receivers) == self._agents:
                    self._forget(mark, at)
                return entry.value
        entry = _Decided(mark, value, now_ms, {agent})
        alike.append(entry)
        self._order.append(entry)
        return value

    def _expire(self, now_ms: Millis) -> None:
        order = self._order
        while order and (order[0].at_ms + self._later_ms < now_ms or len(order) > TWINS_MAX):
            oldest = order.popleft()
            if (alike := self._alike.get(oldest.mark)) and alike[0] is oldest:
                self._forget(oldest.mark, 0)

    def _forget(self, mark: int, at: int) -> None:
        alike = self._alike[mark]
        del alike[at]
        if not alike:
            del self._alike[mark]
