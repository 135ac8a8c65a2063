"""Keeps pages current: one answer that never ends, of server-sent events.

Nothing is queued for a page: each remembers what it has seen and gets what changed since, so a slow
one is told less often and of the newest state. One that takes nothing is cut by ``listener``;
browsers come again by themselves.

Source: the HTML standard, "Server-sent events".
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

BEAT_S: Final = 5.0
"""Between two words while nothing changes, by which a page knows that we live."""
GAP_S: Final = 0.2
"""Between two changes told to one page."""


class Pulse:
    """Wakes all who wait, each time that it is given."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.over = False

    def give(self) -> None:
        """Wake all who wait."""
        event, self._event = self._event, asyncio.Event()
        event.set()

    def end(self) -> None:
        """Wake them for the last time."""
        self.over = True
        self.give()

    async def wait(self, timeout_s: float) -> None:
        """Return at the next pulse, or when so much time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._event.wait()


class EventStream(StreamingResponse):
    """An answer of server-sent events to a page that may stop listening at any moment."""

    def __init__(self, events: AsyncIterator[str], *, on_end: Callable[[], None]) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, and say when that is over, however it ends."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()


async def told(pulse: Pulse, changes: Callable[[dict[str, int]], str]) -> AsyncIterator[str]:
    """What a page is told: everything, and then what changed each time that ``pulse`` is given.

    ``changes`` gives what changed, as JSON, since it gave what it was given last, and notes that
    there.
    """
    seen: dict[str, int] = {}
    while not pulse.over:
        yield f"data: {changes(seen)}\n\n"
        await asyncio.sleep(GAP_S)
        await pulse.wait(BEAT_S)
