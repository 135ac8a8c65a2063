"""What is remembered within bounds: answers, so that a question asked for each publication is
thought about once, and what happened last.

When there are too many answers all are forgotten: the questions that are asked often are soon
answered again, and looking one up costs nothing but that.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sized
from typing import Final, Generic, TypeVar

ANSWERS_MAX: Final = 65_536
LENGTH_MAX: Final = 256
"""Longer topics are asked about every time."""

K = TypeVar("K", bound=Sized)
V = TypeVar("V")
H = TypeVar("H", bound=Hashable)


class BoundedCache(Generic[K, V]):
    """``ask``, remembered. Its answer depends on the topic alone, until ``clear``."""

    def __init__(self, ask: Callable[[K], V], *, answers_max: int = ANSWERS_MAX) -> None:
        self._ask = ask
        self._answers_max = answers_max
        self._answers: dict[K, V] = {}

    def __call__(self, topic: K) -> V:
        """The answer about ``topic``."""
        try:
            return self._answers[topic]
        except KeyError:
            pass
        answer = self._ask(topic)
        if len(topic) <= LENGTH_MAX:
            if len(self._answers) >= self._answers_max:
                self._answers.clear()
            self._answers[topic] = answer
        return answer

    def clear(self) -> None:
        """Forget all answers: they are others now."""
        self._answers.clear()


class Recent(OrderedDict[H, V]):
    """The ``entries_max`` entries put in last."""

    def __init__(self, entries_max: int) -> None:
        super().__init__()
        self._entries_max = entries_max

    def put(self, key: H, value: V) -> None:
        """Put an entry in, or in again, as the newest; the oldest makes room."""
        self[key] = value
        self.move_to_end(key)
        if len(self) > self._entries_max:
            self.popitem(last=False)


class Lately(Generic[H, V]):
    """The ``entries_max`` entries put in last, each for ``kept_ms``."""

    def __init__(self, entries_max: int, *, kept_ms: int) -> None:
        self._entries: Recent[H, tuple[int, V]] = Recent(entries_max)
        self._kept_ms = kept_ms

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, key: H, value: V, now_ms: int) -> None:
        """Put an entry in, or in again, as the newest; the oldest makes room."""
        self._entries.put(key, (now_ms, value))

    def get(self, key: H, now_ms: int) -> V | None:
        """What was put in, while it is kept; what is older is forgotten."""
        while self._entries:
            at_ms, _ = next(iter(self._entries.values()))
            if now_ms - at_ms < self._kept_ms:
                break
            self._entries.popitem(last=False)
        kept = self._entries.get(key)
        return None if kept is None else kept[1]
