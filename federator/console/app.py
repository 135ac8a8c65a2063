"""The console as a process: its observer, its pages, and the signals that end it.

Source: docs/console.md.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import structlog
import uvicorn

from federator.config.all_brokers.console import ConsoleSettings
from federator.console.listener import PagesConfig, listening
from federator.console.observer import Observer
from federator.console.stream import Pulse
from federator.console.web import Console
from federator.runtime.process import service_manager
from federator.runtime.process.http import port_taken
from federator.runtime.process.reloading import Reloader, Source, reload_requested
from federator.runtime.process.serving import run_to_end, stop_requested, with_tasks

_log = structlog.get_logger()


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to us."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(settings: ConsoleSettings, source: Source[ConsoleSettings]) -> None:
    """Show a federation until SIGTERM or SIGINT; ``source`` is read again at SIGHUP.

    Raises:
        ConfigError: The port is not available.
    """
    run_to_end(_run(settings, source))


async def _run(settings: ConsoleSettings, source: Source[ConsoleSettings]) -> None:
    stop = stop_requested(settings.notices())
    reloader = Reloader(settings, source, reload_requested())
    host, port = settings.http.host, settings.http.port
    try:
        listener = listening(host, port)
    except OSError as error:
        raise port_taken(host, port, error) from error
    with listener:
        await with_tasks(lambda tasks: _show(settings, tasks, reloader, stop, listener))
    _log.info("console.stopped")


async def _show(
    settings: ConsoleSettings,
    tasks: asyncio.TaskGroup,
    reloader: Reloader[ConsoleSettings],
    stop: asyncio.Event,
    listener: socket.socket,
) -> None:
    pulse = Pulse()
    observer = Observer(settings, tasks, changed=pulse.give)

    def ready() -> tuple[bool, str]:
        why = observer.connections.why_none()
        return why is None, why or "ready"

    console = Console(settings, observer, pulse, ready)
    config = PagesConfig(console.application(), behind_proxy=settings.http.behind_tls)
    server = _Server(config)
    serving = tasks.create_task(server.serve(sockets=[listener]), name="pages")
    observer.start()
    host, port = listener.getsockname()[:2]
    _log.info("console.started", http_host=host, http_port=port)
    links = lambda: [source.link for source in observer.connections.by_url.values()]  # noqa: E731
    async with (
        service_manager.told(ready, links) as reloading,
        reloader.following(reloading),
    ):
        await stop.wait()
    pulse.end()
    server.should_exit = True
    await serving
