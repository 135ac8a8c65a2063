"""The one way to wait for a condition: with a deadline, and with words for what did not come."""

import asyncio
import time
from collections.abc import Callable
from inspect import isawaitable
from typing import Any, Final

from federator.errors import LinkError

DEADLINE_S: Final = 60.0
"""Far above what any condition here takes, so that only a real failure meets it."""

POLL_S: Final = 0.01
ASK_S: Final = 0.03
"""Between two questions to another process: to answer costs it a processor's time too."""


async def until(
    condition: Callable[[], Any],
    what: str | Callable[[], str],
    *,
    deadline_s: float = DEADLINE_S,
    poll_s: float | None = None,
) -> Any:  # noqa: ANN401  # what the condition answers
    """Ask ``condition``, which may be a coroutine function, until its answer is true; return that.

    Raises:
        LinkError: It was not within ``deadline_s``; the text says ``what`` is missing.
    """
    end_s = time.monotonic() + deadline_s
    while True:
        found = condition()
        asked = isawaitable(found)
        found = await found if asked else found
        if found:
            return found
        if time.monotonic() > end_s:
            missing = what if isinstance(what, str) else what()
            raise LinkError(f"not within {deadline_s:g} s: {missing}")
        await asyncio.sleep(poll_s or (ASK_S if asked else POLL_S))
