"""What our daemons share as processes: event loop, signals, HTTP page."""

import asyncio
import contextlib
import gc
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable

from federator.config.sections import HttpSettings
from federator.protocol.effects import Notice
from federator.runtime.process.http import AgentView, HttpServer
from federator.runtime.process.notices import log_notice


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The factory of event loops: uvloop where it is installed; 32-bit gateways lack it."""
    try:
        import uvloop  # noqa: PLC0415 - optional
    except ImportError:
        return None
    return uvloop.new_event_loop


def run_to_end(main: Coroutine[object, object, None]) -> None:
    """Run ``main`` on a loop of its own.

    Modules and classes stay: from here on Python's garbage collector, which stops the loop, ignores
    them. They are 60,000 objects, or 30 ms of each collection.
    """
    gc.collect()
    gc.freeze()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main)


def stop_requested(notices: Iterable[Notice]) -> asyncio.Event:
    """An event that SIGTERM and SIGINT set from now on; ``notices`` are logged at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    for notice in notices:
        log_notice(notice)
    return stop


async def with_tasks(be: Callable[[asyncio.TaskGroup], Awaitable[None]]) -> None:
    """Run ``be`` with a group for background tasks; when it returns, all of them end."""
    try:
        async with asyncio.TaskGroup() as tasks:
            await be(tasks)
            raise _StoppedError
    except* _StoppedError:
        pass


@contextlib.asynccontextmanager
async def http_page(view: AgentView, settings: HttpSettings) -> AsyncIterator[int | None]:
    """Serve ``view`` as the settings say; yields the port, or ``None`` when disabled."""
    if not settings.enabled:
        yield None
        return
    async with HttpServer(view, settings.host, settings.port, names=settings.names) as server:
        view.http_refused = lambda: server.gave_way
        yield server.port


class _StoppedError(Exception):
    """Raised to end the task group, in which all other tasks run for ever."""
