"""The collector as a process: its folder, its HTTP page, and the signals that end it."""

import asyncio
import contextlib
import signal
from typing import Final

import structlog

from federator.collector.collector import Collector
from federator.collector.landing import Landing
from federator.collector.view import CollectorView
from federator.config import CollectorSettings
from federator.runtime import service_manager
from federator.runtime.app import loop_factory
from federator.runtime.http import HttpServer

LEAVE_S: Final = 10.0
"""What landing the rest may take at the end; what is not landed then is asked for again."""

_log = structlog.get_logger()


def serve(settings: CollectorSettings) -> None:
    """Collect until SIGTERM or SIGINT.

    Raises:
        ConfigError: The folder or the HTTP port cannot be had.
    """
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(run(settings))


async def run(settings: CollectorSettings) -> None:
    """As ``serve``, on the running loop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    for notice in settings.notices():
        getattr(_log, notice.level)(notice.name, **notice.details)
    with Landing(settings.landing, sync=settings.files.sync) as landing:
        try:
            async with asyncio.TaskGroup() as tasks:
                await _collect(Collector(settings, landing, tasks), stop)
        except* _StoppedError:
            _log.info("collector.stopped", landing=str(settings.landing))


async def _collect(collector: Collector, stop: asyncio.Event) -> None:
    settings, landing = collector.settings, collector.landing
    view = CollectorView(collector)
    async with contextlib.AsyncExitStack() as stack:
        if settings.http.enabled:
            server = HttpServer(view, host=settings.http.host, port=settings.http.port)
            await stack.enter_async_context(server)
            view.http_refused = lambda: server.refused
        collector.start()
        _log.info(
            "collector.started",
            landing=str(landing.path),
            files=landing.files,
            spools=len(collector.collection.landed),
            leftovers=landing.leftovers,
            http_port=server.port if settings.http.enabled else None,
        )
        async with service_manager.told(
            view.ready, lambda: [source.link for source in collector.sources.values()]
        ):
            await stop.wait()
        await collector.leave(patience_s=LEAVE_S)
    raise _StoppedError


class _StoppedError(Exception):
    """Ends the task group: whatever else runs in it runs for ever."""
