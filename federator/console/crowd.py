"""Limits on what viewers may use of a console, in total and per address.

Viewers are strangers. So that one of them leaves something for the others, an address may have at
most half of the live pages, and half of the questions. Behind a proxy on this machine
(``http.behind_tls``) addresses are taken from ``X-Forwarded-For``; behind another proxy all viewers
share one.

Source: docs/console.md, "What it takes".
"""

from collections import Counter
from typing import Final, Literal

from federator.protocol.bounded_cache import Recent
from federator.protocol.rate_limiter import TokenBucket
from federator.protocol.types import Millis

QUESTIONS_PER_S: Final = 20
"""Questions to agents, for all pages together: each may ask every agent."""
LOOKS_PER_S: Final = 100
"""Questions that the console answers from its own memory."""
ADDRESSES_MAX: Final = 1_024
"""Addresses with counted questions; the one with the oldest question is forgotten first."""


Answerer = Literal["agents", "us"]


class Crowd:
    """Counts pages and questions.

    Args:
        pages_max: How many live pages there may be at once.

    Attributes:
        turned_away: Pages refused for lack of a place.
        refused: Questions beyond the limit.
        asked: Questions that were accepted.
    """

    def __init__(self, pages_max: int) -> None:
        self.turned_away = self.refused = self.asked = 0
        self._pages_max = pages_max
        self._of_one_max = max(1, pages_max // 2)
        self._pages: Counter[str] = Counter()
        self._budgets: dict[Answerer, _Budget] = {
            "agents": _Budget(QUESTIONS_PER_S),
            "us": _Budget(LOOKS_PER_S),
        }

    @property
    def pages(self) -> int:
        """How many live pages there are."""
        return self._pages.total()

    def enter(self, address: str) -> bool:
        """Admit one more live page of ``address`` if there is a place; it must ``leave`` later."""
        if self.pages >= self._pages_max or self._pages[address] >= self._of_one_max:
            self.turned_away += 1
            return False
        self._pages[address] += 1
        return True

    def leave(self, address: str) -> None:
        """Note that a page of ``address`` is closed."""
        self._pages[address] -= 1
        if not self._pages[address]:
            del self._pages[address]

    def may_ask(self, answerer: Answerer, address: str, now_ms: Millis) -> bool:
        """Whether ``address`` may ask one more question that agents, or we ourselves, answer."""
        allowed = self._budgets[answerer].take(address, now_ms)
        self.asked += allowed
        self.refused += not allowed
        return allowed


class _Budget:
    """So many per second, of which one address may have half."""

    def __init__(self, per_s: int) -> None:
        self._of_one_per_s = per_s // 2
        self._all = TokenBucket(per_s)
        self._of_one: Recent[str, TokenBucket] = Recent(ADDRESSES_MAX)

    def take(self, address: str, now_ms: Millis) -> bool:
        bucket = self._of_one.get(address) or TokenBucket(self._of_one_per_s)
        self._of_one.put(address, bucket)
        return bucket.take(now_ms) and self._all.take(now_ms)
