"""The daemon: one agent, its HTTP page, and the signals that end it."""

import asyncio
import contextlib

import structlog

from federator.config.settings import Settings
from federator.runtime.agent.agent import Agent
from federator.runtime.agent.pages import view_of
from federator.runtime.process import service_manager
from federator.runtime.process.serving import http_page, run_to_end, stop_requested, with_tasks
from federator.runtime.storage.durable import write_whole
from federator.runtime.storage.state_dir import StateDir

LAG_PROBE_S = 1.0

_log = structlog.get_logger()


def serve(settings: Settings) -> None:
    """Be the agent until SIGTERM or SIGINT.

    Raises:
        ConfigError: The state folder or the HTTP port cannot be had.
    """
    run_to_end(run(settings))


async def run(settings: Settings) -> None:
    """As ``serve``, on the running loop."""
    stop = stop_requested(settings.notices())
    with StateDir(settings.state_dir) as state:
        await with_tasks(lambda tasks: _be_agent(Agent(settings, state, tasks), tasks, stop))
        _log.info("agent.stopped", id=settings.broker.id)


async def _be_agent(agent: Agent, tasks: asyncio.TaskGroup, stop: asyncio.Event) -> None:
    settings = agent.settings
    view, control = view_of(agent), agent.control
    own_links = (control.link, control.data_link)
    async with http_page(view, settings.http) as port:
        if port is not None:
            write_whole(settings.state_dir / "http.port", b"%d\n" % port)
        agent.start()
        tasks.create_task(view.measure_lag(LAG_PROBE_S), name="loop lag")
        _log.info("agent.started", id=settings.broker.id, epoch=control.epoch)
        async with service_manager.told(view.ready, lambda: own_links):
            await stop.wait()
        with contextlib.suppress(TimeoutError):
            await agent.leave()
