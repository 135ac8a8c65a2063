"""The gateway as a process: its HTTP page, and the signals that end it."""

import asyncio
import contextlib
import resource
from typing import Final

import structlog

from federator.config.gateway import GatewaySettings
from federator.gateway.gateway import Gateway
from federator.gateway.view import GatewayView
from federator.runtime.process import service_manager
from federator.runtime.process.serving import http_page, run_to_end, stop_requested, with_tasks

LEAVE_S: Final = 5.0
"""How long publications may take to be acknowledged before clients are told that we stop."""

_log = structlog.get_logger()


def serve(settings: GatewaySettings) -> None:
    """Run the gateway until SIGTERM or SIGINT.

    Raises:
        ConfigError: A port cannot be had.
    """
    run_to_end(run(settings))


async def run(settings: GatewaySettings) -> None:
    """Run the gateway as ``serve`` does, on the running loop."""
    _allow_many_connections()
    stop = stop_requested(settings.notices())
    await with_tasks(lambda tasks: _be_gateway(Gateway(settings, tasks), stop))
    _log.info("gateway.stopped", name=settings.name)


async def _be_gateway(gateway: Gateway, stop: asyncio.Event) -> None:
    settings = gateway.settings
    view = GatewayView(gateway)
    async with http_page(view, settings.http) as port:
        await gateway.start()
        _log.info("gateway.started", name=settings.name, epoch=gateway.epoch, http_port=port)
        links = [broker.link for broker in gateway.brokers.values()]
        async with service_manager.told(view.ready, lambda: links):
            await stop.wait()
        await gateway.leave(patience_s=LEAVE_S)


def _allow_many_connections() -> None:
    """Take as many sockets as the system lets us have: each client needs two."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
