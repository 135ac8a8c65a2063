"""How much of a console those who look may take: all of them together, and each address.

Who looks is a stranger. So that one of them cannot leave nothing for the others, an address has at
most half of the pages that are kept current, and half of the questions. Behind a proxy on this
machine (``http.behind_tls``) addresses are those that it tells (``X-Forwarded-For``); behind
another one all are one.

Source: docs/console.md, "What it takes".
"""

from collections import Counter
from typing import Final

from federator.protocol.bounded_cache import Recent
from federator.protocol.rate_limiter import TokenBucket
from federator.protocol.types import Millis

QUESTIONS_PER_S: Final = 20
"""Questions to agents, of all pages together: each may ask every agent."""
LOOKS_PER_S: Final = 100
"""Questions that the console answers from its own memory."""
ADDRESSES_MAX: Final = 1_024
"""Addresses whose questions are counted; the one that asked longest ago is forgotten first."""


class Crowd:
    """Counts pages and questions.

    Args:
        pages_max: How many pages are kept current at once.

    Attributes:
        turned_away: Pages that found no place.
        refused: Questions beyond the bound.
        asked: Questions that were taken.
    """

    def __init__(self, pages_max: int) -> None:
        self.turned_away = self.refused = self.asked = 0
        self._pages_max = pages_max
        self._of_one_max = max(1, pages_max // 2)
        self._pages: Counter[str] = Counter()
        self._budgets = {"questions": _Budget(QUESTIONS_PER_S), "looks": _Budget(LOOKS_PER_S)}

    @property
    def pages(self) -> int:
        """How many pages are kept current."""
        return self._pages.total()

    def enter(self, address: str) -> bool:
        """Whether one more page of ``address`` is kept current; it then has to ``leave``."""
        if self.pages >= self._pages_max or self._pages[address] >= self._of_one_max:
            self.turned_away += 1
            return False
        self._pages[address] += 1
        return True

    def leave(self, address: str) -> None:
        """A page of ``address`` is closed."""
        self._pages[address] -= 1
        if not self._pages[address]:
            del self._pages[address]

    def may_ask(self, address: str, now_ms: Millis) -> bool:
        """Whether ``address`` may ask agents one more question."""
        return self._count(self._budgets["questions"].take(address, now_ms))

    def may_look(self, address: str, now_ms: Millis) -> bool:
        """Whether ``address`` may ask for one more thing that we know ourselves."""
        return self._count(self._budgets["looks"].take(address, now_ms))

    def _count(self, allowed: bool) -> bool:
        self.asked += allowed
        self.refused += not allowed
        return allowed


class _Budget:
    """So many a second, of which an address may have half."""

    def __init__(self, per_s: int) -> None:
        self._of_one_per_s = per_s // 2
        self._all = TokenBucket(per_s)
        self._of_one: Recent[str, TokenBucket] = Recent(ADDRESSES_MAX)

    def take(self, address: str, now_ms: Millis) -> bool:
        bucket = self._of_one.get(address) or TokenBucket(self._of_one_per_s)
        self._of_one.put(address, bucket)
        return bucket.take(now_ms) and self._all.take(now_ms)
