"""SIGINT and SIGTERM end what a verb does in order: no process and no mount stays behind."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

_Outcome = TypeVar("_Outcome")


async def until_stopped(
    work: Coroutine[Any, Any, _Outcome], *, name: str
) -> _Outcome | signal.Signals:
    """Carry out ``work``; the first signal cancels it, later ones do not interrupt the clean-up.

    Returns:
        What came of it, or the signal that ended it.
    """
    loop = asyncio.get_running_loop()
    task = loop.create_task(work, name=name)
    received: list[signal.Signals] = []

    def stop(which: signal.Signals) -> None:
        if not received:
            received.append(which)
            task.cancel()

    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stop, each)
    try:
        return await task
    except asyncio.CancelledError:
        if not received:
            raise
        return received[0]
