"""Waiting for a condition with a deadline: what tests use where others would sleep."""

import asyncio
import time
from collections.abc import Awaitable, Callable

DEADLINE_S = 60.0
"""Far above what any condition here takes, so that only a real failure meets it."""

POLL_S = 0.01


async def until(
    condition: Callable[[], bool],
    what: str,
    *,
    deadline_s: float = DEADLINE_S,
    poll_s: float = POLL_S,
) -> None:
    """Returns as soon as ``condition()`` holds; asked every ``poll_s``.

    Raises:
        AssertionError: it did not within ``deadline_s``; the text names ``what``.
    """
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"not within {deadline_s} s: {what}"
        await asyncio.sleep(poll_s)


async def until_told(ask: Callable[[], Awaitable[bool]], what: str) -> None:
    """As ``until``, for a condition that has to be asked of somebody."""
    end = time.monotonic() + DEADLINE_S
    while not await ask():
        assert time.monotonic() < end, f"not within {DEADLINE_S} s: {what}"
        await asyncio.sleep(POLL_S)
