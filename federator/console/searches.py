"""Limits the rate at which the console sends searches to agents.

An agent answers ``SEARCHES_PER_S`` searches a second and drops the rest without a reply. So the
searches of all viewers take turns here, ``GAP_MS`` apart. When too many wait, the next one is
refused at once, and the viewer sees why. Results of the last ``KEPT_MS`` are returned without
asking again.

Source: docs/console.md, "How it asks".
"""

import asyncio
from typing import Any, Final

from federator.console.answers import Found, read_answer, together
from federator.console.observer import Observer
from federator.errors import LinkError
from federator.protocol.bounded_cache import Lately
from federator.protocol.types import BrokerId, Millis
from federator.runtime.process.clocks import monotonic_ms

GAP_MS: Final = 550
"""Between two searches: a little more than ``runtime.observability.pages.SEARCHES_PER_S`` needs."""
WAITING_MAX: Final = 8
"""Searches that wait for their turn; more are refused."""
KEPT_MS: Final = Millis(3_000)
KEPT_MAX: Final = 4
"""Results kept."""

Key = tuple[BrokerId | None, str]
"""A search: at the agent of one broker or (``None``) at all, and its text."""


class Searches:
    """Asks agents for clients, topics and filters."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._waiting = 0
        self._next_turn_ms = Millis(0)
        self._results: Lately[Key, dict[str, Any]] = Lately(KEPT_MAX, kept_ms=KEPT_MS)

    async def everywhere(self, text: str) -> dict[str, Any]:
        """The clients, topics and filters that match ``text``, at all agents.

        Raises:
            LinkError: Too many searches are waiting.
        """
        return await self._search((None, text))

    async def at(self, broker: BrokerId) -> dict[str, Any]:
        """The first clients, topics and filters that the agent of ``broker`` lists.

        Raises:
            LinkError: Too many searches are waiting, or the agent does not answer.
        """
        return await self._search((broker, ""))

    async def _search(self, key: Key) -> dict[str, Any]:
        """Return a recent result, or wait for a turn and ask."""
        if (recent := self._results.get(key, monotonic_ms())) is not None:
            return recent
        if self._waiting >= WAITING_MAX:
            raise LinkError("too many searches are waiting: try again in a few seconds")
        self._waiting += 1
        try:
            now_ms = monotonic_ms()
            turn_ms = max(now_ms, self._next_turn_ms)
            self._next_turn_ms = Millis(turn_ms + GAP_MS)
            await asyncio.sleep((turn_ms - now_ms) / 1_000)
        finally:
            self._waiting -= 1
        if (recent := self._results.get(key, monotonic_ms())) is not None:
            return recent  # another viewer asked the same meanwhile
        result = await self._ask(*key)
        self._results.put(key, result, monotonic_ms())
        return result

    async def _ask(self, broker: BrokerId | None, text: str) -> dict[str, Any]:
        if broker is not None:
            answer = read_answer(Found, await self._observer.ask(broker, "search", text))
            return together({broker: answer})
        return together(await self._observer.read_all(Found, "search", text))
