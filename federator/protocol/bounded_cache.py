"""Bounded memory: a cache of answers to questions asked for each publication, and recent entries.

When a cache is full, all its answers are dropped: frequent questions are soon answered again, and
that lookup is the only cost.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sized
from typing import Final, Generic, TypeVar

ANSWERS_MAX: Final = 65_536
LENGTH_MAX: Final = 256
"""Answers about longer topics are not cached."""

K = TypeVar("K", bound=Sized)
V = TypeVar("V")
H = TypeVar("H", bound=Hashable)


class BoundedCache(Generic[K, V]):
    """Caches ``ask``, whose answer must depend on the topic alone until ``clear``."""

    def __init__(self, ask: Callable[[K], V], *, answers_max: int = ANSWERS_MAX) -> None:
        self._compute = ask
        self._answers_max = answers_max
        self._answers: dict[K, V] = {}

    def __call__(self, topic: K) -> V:
        try:
            return self._answers[topic]
        except KeyError:
            pass
        answer = self._compute(topic)
        if len(topic) <= LENGTH_MAX:
            if len(self._answers) >= self._answers_max:
                self._answers.clear()
            self._answers[topic] = answer
        return answer

    def clear(self) -> None:
        """Drop all answers: they may have changed."""
        self._answers.clear()


class Recent(OrderedDict[H, V]):
    """The last ``entries_max`` entries."""

    def __init__(self, entries_max: int) -> None:
        super().__init__()
        self._entries_max = entries_max

    def put(self, key: H, value: V) -> None:
        """Add an entry, or renew it as the newest; the oldest makes room."""
        self[key] = value
        self.move_to_end(key)
        if len(self) > self._entries_max:
            self.popitem(last=False)


class Lately(Generic[H, V]):
    """The last ``entries_max`` entries, each for ``kept_ms``."""

    def __init__(self, entries_max: int, *, kept_ms: int) -> None:
        self._entries: Recent[H, tuple[int, V]] = Recent(entries_max)
        self._kept_ms = kept_ms

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, key: H, value: V, now_ms: int) -> None:
        """Add an entry, or renew it as the newest; the oldest makes room."""
        self._entries.put(key, (now_ms, value))

    def get(self, key: H, now_ms: int) -> V | None:
        """The value of ``key``, if it is younger than ``kept_ms``; drop older entries."""
        while self._entries:
            at_ms, _ = next(iter(self._entries.values()))
            if now_ms - at_ms < self._kept_ms:
                break
            self._entries.popitem(last=False)
        kept = self._entries.get(key)
        return None if kept is None else kept[1]
