"""The daemon: one agent, its HTTP page, and the signals that end it."""

import asyncio
import contextlib
import signal
from collections.abc import Callable

import structlog

from federator.config import Settings
from federator.runtime import service_manager
from federator.runtime.agent import Agent
from federator.runtime.agent_view import LiveView
from federator.runtime.http import HttpServer
from federator.runtime.state_dir import StateDir, write_whole

LAG_PROBE_S = 1.0

_log = structlog.get_logger()


def serve(settings: Settings) -> None:
    """Be the agent until SIGTERM or SIGINT.

    Raises:
        ConfigError: The state folder or the HTTP port cannot be had.
    """
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(run(settings))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed; 32-bit gateways lack it."""
    try:
        import uvloop  # noqa: PLC0415 - optional
    except ImportError:
        return None
    return uvloop.new_event_loop


async def run(settings: Settings) -> None:
    """As ``serve``, on the running loop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    for notice in settings.notices():
        getattr(_log, notice.level)(notice.name, **notice.details)
    with StateDir(settings.state_dir) as state:
        try:
            async with asyncio.TaskGroup() as tasks:
                await _be_agent(Agent(settings, state, tasks), tasks, stop)
        except* _StoppedError:
            _log.info("agent.stopped", id=settings.broker.id)


async def _be_agent(agent: Agent, tasks: asyncio.TaskGroup, stop: asyncio.Event) -> None:
    settings = agent.settings
    view = LiveView(agent)
    async with contextlib.AsyncExitStack() as stack:
        if settings.http.enabled:
            server = HttpServer(view, host=settings.http.host, port=settings.http.port)
            await stack.enter_async_context(server)
            view.http_refused = lambda: server.refused
            write_whole(settings.state_dir / "http.port", b"%d\n" % server.port)
        agent.start()
        tasks.create_task(view.measure_lag(LAG_PROBE_S), name="loop lag")
        _log.info("agent.started", id=settings.broker.id, epoch=agent.epoch)
        async with service_manager.told(view.ready, lambda: (agent.control_link, agent.data_link)):
            await stop.wait()
        with contextlib.suppress(TimeoutError):
            await agent.leave()
    raise _StoppedError


class _StoppedError(Exception):
    """Ends the task group: whatever else runs in it runs for ever."""
