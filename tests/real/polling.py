"""Waiting for a condition with a deadline: what tests use where others would sleep."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

DEADLINE_S = 60.0
"""Far above what any condition here takes, so that only a real failure meets it."""

POLL_S = 0.01

ASK_S = 0.03
"""Between two questions to another process: to answer costs it a processor's time too."""


async def until(
    condition: Callable[[], bool], what: str, *, deadline_s: float = DEADLINE_S
) -> None:
    """Returns as soon as ``condition()`` holds.

    Raises:
        AssertionError: it did not within ``deadline_s``; the text names ``what``.
    """
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, f"not within {deadline_s} s: {what}"
        await asyncio.sleep(POLL_S)


async def until_none(
    lacking: Callable[[], Sequence[object]], what: str, *, poll_s: float = POLL_S
) -> None:
    """As ``until``, for a condition that nothing is lacking: if something is, it is told.

    ``poll_s``: longer for what is long to find out.
    """
    end = time.monotonic() + DEADLINE_S
    while found := lacking():
        assert time.monotonic() < end, f"{what}: {len(found)} lacking, among them {found[:10]}"
        await asyncio.sleep(poll_s)


async def until_told(ask: Callable[[], Awaitable[bool]], what: str) -> None:
    """As ``until``, for a condition that has to be asked of somebody."""
    end = time.monotonic() + DEADLINE_S
    while not await ask():
        assert time.monotonic() < end, f"not within {DEADLINE_S} s: {what}"
        await asyncio.sleep(ASK_S)
