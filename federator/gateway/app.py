"""The gateway as a process: its HTTP page, and the signals that end it."""

import asyncio
import contextlib
import resource
import signal
from typing import Final

import structlog

from federator.config import GatewaySettings
from federator.gateway.gateway import Gateway
from federator.gateway.view import GatewayView
from federator.runtime import service_manager
from federator.runtime.app import loop_factory
from federator.runtime.http import HttpServer

LEAVE_S: Final = 5.0
"""What publications may take to be acknowledged before clients are told that we stop."""

_log = structlog.get_logger()


def serve(settings: GatewaySettings) -> None:
    """Be the gateway until SIGTERM or SIGINT.

    Raises:
        ConfigError: A port cannot be had.
    """
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(run(settings))


async def run(settings: GatewaySettings) -> None:
    """As ``serve``, on the running loop."""
    _allow_many_connections()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    for notice in settings.notices():
        getattr(_log, notice.level)(notice.name, **notice.details)
    try:
        async with asyncio.TaskGroup() as tasks:
            await _be_gateway(Gateway(settings, tasks), stop)
    except* _StoppedError:
        _log.info("gateway.stopped", name=settings.name)


async def _be_gateway(gateway: Gateway, stop: asyncio.Event) -> None:
    settings = gateway.settings
    view = GatewayView(gateway)
    async with contextlib.AsyncExitStack() as stack:
        if settings.http.enabled:
            server = HttpServer(view, host=settings.http.host, port=settings.http.port)
            await stack.enter_async_context(server)
            view.http_refused = lambda: server.refused
        await gateway.start()
        http = server.port if settings.http.enabled else None
        _log.info("gateway.started", name=settings.name, epoch=gateway.epoch, http_port=http)
        links = [broker.link for broker in gateway.brokers.values()]
        async with service_manager.told(view.ready, lambda: links):
            await stop.wait()
        await gateway.leave(patience_s=LEAVE_S)
    raise _StoppedError


def _allow_many_connections() -> None:
    """Two sockets a client: what the system lets us have, not what shells start with."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class _StoppedError(Exception):
    """Ends the task group: whatever else runs in it runs for ever."""
