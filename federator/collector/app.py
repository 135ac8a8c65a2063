"""The collector as a process: its folder, its HTTP page, and the signals that end it."""

import asyncio
from typing import Final

import structlog

from federator.collector.collector import Collector
from federator.collector.landing import Landing
from federator.collector.view import CollectorView
from federator.config.collector import CollectorSettings
from federator.runtime.process import service_manager
from federator.runtime.process.serving import http_page, run_to_end, stop_requested, with_tasks

LEAVE_S: Final = 10.0
"""What landing the rest may take at the end; what is not landed then is asked for again."""

_log = structlog.get_logger()


def serve(settings: CollectorSettings) -> None:
    """Collect until SIGTERM or SIGINT.

    Raises:
        ConfigError: The folder or the HTTP port cannot be had.
    """
    run_to_end(run(settings))


async def run(settings: CollectorSettings) -> None:
    """Collect as ``serve`` does, on the running loop."""
    stop = stop_requested(settings.notices())
    with Landing(settings.landing, sync=settings.files.sync) as landing:
        await with_tasks(lambda tasks: _collect(Collector(settings, landing, tasks), stop))
        _log.info("collector.stopped", landing=str(settings.landing))


async def _collect(collector: Collector, stop: asyncio.Event) -> None:
    settings, landing = collector.settings, collector.landing
    view = CollectorView(collector)
    async with http_page(view, settings.http) as port:
        collector.start()
        _log.info(
            "collector.started",
            landing=str(landing.path),
            files=landing.files,
            spools=len(collector.collection.landed),
            leftovers=landing.leftovers,
            http_port=port,
        )
        async with service_manager.told(
            view.ready, lambda: [source.link for source in collector.sources.values()]
        ):
            await stop.wait()
        await collector.leave(patience_s=LEAVE_S)
