"""Remembers answers, so that a question asked for each publication is thought about once.

When there are too many answers all are forgotten: the questions that are asked often are soon
answered again, and looking one up costs nothing but that.
"""

from collections.abc import Callable, Sized
from typing import Final, Generic, TypeVar

ANSWERS_MAX: Final = 65_536
LENGTH_MAX: Final = 256
"""Longer topics are asked about every time."""

K = TypeVar("K", bound=Sized)
V = TypeVar("V")


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
