"""The daemon: one agent, its HTTP pages, and the signals that end it."""

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from federator.config.settings import Settings
from federator.protocol.leaves.stamps import StampBook
from federator.protocol.types import BrokerId
from federator.runtime.agent.agent import Agent
from federator.runtime.agent.status import AgentPages, Beside
from federator.runtime.leaves.moving import Move, begin, beginning, forget
from federator.runtime.leaves.role import OtherAgent
from federator.runtime.mqtt.endpoint import Endpoint
from federator.runtime.process import service_manager
from federator.runtime.process.clocks import wall_clock_us
from federator.runtime.process.reloading import Reloader, Source, reload_requested
from federator.runtime.process.serving import http_page, run_to_end, stop_requested, with_tasks
from federator.runtime.storage.durable import write_whole
from federator.runtime.storage.state_dir import StateDir

if TYPE_CHECKING:
    from federator.runtime.leaves.hub import Hub
    from federator.runtime.leaves.hub_finder import HubFinder

LAG_PROBE_S = 1.0

_log = structlog.get_logger()


def serve(settings: Settings, source: Source[Settings], former: Settings | None = None) -> None:
    """Run the agent until SIGTERM or SIGINT; read ``source`` again at SIGHUP.

    Args:
        former: What ``settings.former`` holds, if it is named.

    Raises:
        ConfigError: The state folder or the HTTP port is not available.
    """
    run_to_end(run(settings, source, former))


async def run(settings: Settings, source: Source[Settings], was: Settings | None) -> None:
    """As ``serve``, on the running loop."""
    stop, asked = stop_requested(settings.notices()), reload_requested()

    async def be(tasks: asyncio.TaskGroup) -> None:
        # Keyed by the secret of our client ids: it survives a restart, as waiting stamped data
        # does.
        stamps = settings.leaves or settings.former
        secret = state.client_token().encode() if stamps else None
        book = StampBook(secret, life=wall_clock_us())
        finder = _finder(settings, state.path) if settings.finds_hubs else None
        mine, mine_again = settings, source
        if finder is not None:
            await finder.start()
            mine, mine_again = finder.narrowed(settings), finder.source(source)
        move = None
        if was is not None and former_state is not None:
            move = Move(was, state.path, partial(_former_agent, former_state, book))
        other = None if move is None else move.former
        hub = _hub(mine, folders) if mine.leaves else None
        agent = Agent(mine, state, tasks, book, hub, other)
        if hub is not None:
            hub.join(None, agent)
            for leaf, folder in zip(mine.leaves, folders.values(), strict=True):
                id = BrokerId(leaf.id)
                port = Agent(mine.for_leaf(leaf), folder, tasks, book, hub.port(id))
                hub.join(id, port)
        prepare = agent.control.connections.endpoints_for

        def follow(settings: Settings, endpoints: Mapping[str, Endpoint]) -> None:
            agent.follow(settings, endpoints)
            if finder is not None:
                finder.follow(settings)
            if hub is not None:
                hub.follow(settings)

        reloader = Reloader(mine, mine_again, asked, prepare=prepare, follow=follow)
        if finder is not None:
            tasks.create_task(finder.run(agent, reloader, prepare), name="hub finder")
        await _be_agent(agent, Beside(hub, finder, move), reloader, tasks, stop)

    with contextlib.ExitStack() as stack:
        state = stack.enter_context(StateDir(settings.state_dir))
        folders = {
            BrokerId(leaf.id): stack.enter_context(StateDir(settings.for_leaf(leaf).state_dir))
            for leaf in settings.leaves
        }
        former_state = None
        if was is None:
            forget(state)
        else:
            begin(state.path)
            former_state = stack.enter_context(StateDir(was.state_dir))
            forget(former_state)
            settings = beginning(settings)
            read = source.read
            source = replace(source, read=lambda: beginning(read()))
        await with_tasks(be)
        _log.info("agent.stopped", id=settings.broker.id)


def _finder(settings: Settings, folder: Path) -> "HubFinder":
    from federator.runtime.leaves.hub_finder import HubFinder  # noqa: PLC0415 - of few leaves

    return HubFinder(settings, folder)


def _hub(settings: Settings, folders: Mapping[BrokerId, StateDir]) -> "Hub":
    from federator.runtime.leaves.hub import Hub  # noqa: PLC0415 - of few brokers

    return Hub(settings, {leaf: folder.path for leaf, folder in folders.items()})


def _former_agent(
    state: StateDir,
    book: StampBook,
    settings: Settings,
    tasks: asyncio.TaskGroup,
    other: OtherAgent,
) -> Agent:
    return Agent(settings, state, tasks, book, other=other)


async def _be_agent(
    agent: Agent,
    beside: Beside,
    reloader: Reloader[Settings],
    tasks: asyncio.TaskGroup,
    stop: asyncio.Event,
) -> None:
    settings, control = agent.settings, agent.control
    hub, move = beside.hub, beside.move
    pages = AgentPages(agent.services, reloader, beside)
    own_links = (control.link, control.data_link)
    async with http_page(pages, settings.http) as port:
        if port is not None:
            write_whole(settings.state_dir / "http.port", b"%d\n" % port)
        if hub is not None:
            hub.start()
        if move is not None:
            await move.start(agent, tasks)
        agent.start()
        tasks.create_task(pages.measure_lag(LAG_PROBE_S), name="loop lag")
        tasks.create_task(agent.data.state.inventory.follow(), name="inventory")
        _log.info("agent.started", id=settings.broker.id, epoch=control.epoch)
        async with (
            service_manager.told(pages.ready, lambda: own_links) as reloading,
            reloader.following(reloading),
        ):
            await stop.wait()
        with contextlib.suppress(TimeoutError):
            await agent.leave()
        for part in (hub, move):
            if part is not None:
                with contextlib.suppress(TimeoutError):
                    await part.leave()
