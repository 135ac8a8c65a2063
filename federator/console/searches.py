"""Searches of all viewers, one after the other: an agent answers two a second, and drops others.

So a search waits for its turn here, where the viewer can be informed, and recent results are
returned without asking.

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
"""Between two searches; see ``runtime.observability.pages.SEARCHES_PER_S``."""
WAITING_MAX: Final = 8
KEPT_MS: Final = Millis(3_000)
KEPT_MAX: Final = 4

Key = tuple[BrokerId | None, str]


class Searches:
    """Asks agents for clients, topics and filters."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._waiting = 0
        self._next_ms = Millis(0)
        self._kept: Lately[Key, dict[str, Any]] = Lately(KEPT_MAX, kept_ms=KEPT_MS)

    async def everywhere(self, text: str) -> dict[str, Any]:
        """What every agent knows about ``text``.

        Raises:
            LinkError: Too many searches are waiting.
        """
        return await self._found((None, text))

    async def at(self, broker: BrokerId) -> dict[str, Any]:
        """The first of the clients that the agent of ``broker`` knows.

        Raises:
            LinkError: As above, or the agent does not answer.
        """
        return await self._found((broker, ""))

    async def _found(self, key: Key) -> dict[str, Any]:
        if (kept := self._kept.get(key, monotonic_ms())) is not None:
            return kept
        if self._waiting >= WAITING_MAX:
            raise LinkError("too many searches are waiting: try again in a few seconds")
        self._waiting += 1
        try:
            now_ms = monotonic_ms()
            turn_ms = max(now_ms, self._next_ms)
            self._next_ms = Millis(turn_ms + GAP_MS)
            await asyncio.sleep((turn_ms - now_ms) / 1_000)
        finally:
            self._waiting -= 1
        if (kept := self._kept.get(key, monotonic_ms())) is not None:
            return kept
        answer = await self._query(*key)
        self._kept.put(key, answer, monotonic_ms())
        return answer

    async def _query(self, broker: BrokerId | None, text: str) -> dict[str, Any]:
        if broker is not None:
            answer = read_answer(Found, await self._observer.ask(broker, "search", text))
            return together({broker: answer})
        return together(await self._observer.read_all(Found, "search", text))
