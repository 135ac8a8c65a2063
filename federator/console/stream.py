"""Keeps pages current: one endless answer of server-sent events.

Nothing is queued for a page: each gets what changed since its last event, so a slow one gets fewer
events, with the newest state. ``listener`` closes one that reads nothing; browsers reconnect by
themselves.

Source: the HTML standard, "Server-sent events".
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

BEAT_S: Final = 5.0
"""Between two events while nothing changes; they show a page that we are alive."""
GAP_S: Final = 0.2
"""Least time between two changes sent to one page."""


class Pulse:
    """Wakes all waiting tasks each time it is given."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.over = False

    def give(self) -> None:
        """Wake all waiting tasks."""
        event, self._event = self._event, asyncio.Event()
        event.set()

    def end(self) -> None:
        """Wake them for the last time."""
        self.over = True
        self.give()

    async def wait(self, timeout_s: float) -> None:
        """Return at the next pulse, or after ``timeout_s``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._event.wait()


class EventStream(StreamingResponse):
    """An answer of server-sent events to a page that may close at any moment."""

    def __init__(self, events: AsyncIterator[str], *, on_end: Callable[[], None]) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer, and call ``on_end`` however it ends."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()


async def events_for_page(
    pulse: Pulse, changes: Callable[[dict[str, int]], str]
) -> AsyncIterator[str]:
    """The events for a page: everything, and then what changed each time that ``pulse`` is given.

    ``changes`` returns, as JSON, what changed since the state in its argument, which it updates.
    """
    seen: dict[str, int] = {}
    while not pulse.over:
        yield f"data: {changes(seen)}\n\n"
        await asyncio.sleep(GAP_S)
        await pulse.wait(BEAT_S)
