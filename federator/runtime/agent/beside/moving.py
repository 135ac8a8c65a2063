"""A broker that changes its role, from leaf to member or back, with nothing lost on the way.

Two agents are beside the broker for a while. The **former** one is started first, as it was: what
its clients had published, what its log holds and what is kept for it finds its way. Beside it the
**successor** joins, and both bring what clients want; what comes twice for that is known by its
stamp. When the successor has stood for a while, so that all know what its clients want and it knows
what all want, it takes over what clients publish. The former one goes on for as long as somebody
may ask it for something, and then is gone for good.

Source: docs/hubs.md, "Moving"; ``protocol.data.handover``.
"""

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from dataclasses import replace
from os import EX_CONFIG
from pathlib import Path
from typing import Final

import structlog

from federator.config.sections import (
    AgentFailoverSettings,
    MetricsSettings,
    ShareSettings,
)
from federator.config.settings import Settings
from federator.config.topics import LoopSettings
from federator.errors import ConfigError
from federator.protocol.data.delivery import Delivery, WaitingFrames
from federator.protocol.data.handover import Handover, Turn
from federator.protocol.data.stamps import StampBook
from federator.runtime.agent.agent import Agent
from federator.runtime.process.clocks import both_clocks
from federator.runtime.process.serving import with_tasks
from federator.runtime.storage import damage
from federator.runtime.storage.durable import CANNOT_CREATE
from federator.runtime.storage.state_dir import StateDir

FILE: Final = "move"

FIRST_WAIT_S: Final = 10.0
"""How long the successor waits for the former agent's link, over which stamps are asked for."""

STANDS_S: Final = 15.0
"""How long the successor stands before it takes over: tails come every 10 s."""

ENDS_S: Final = 30.0
"""How long the former agent brings what is kept for it, with a link, after that."""

HELD_LOOKS: Final = 15
"""How long what clients publish waits then: what went by the former agent is to be there first.
While this process stands still that one sends nothing, so looks are counted, and not the time."""

SAID_S: Final = 1.0
"""What was said is heard at the other end of a link."""

LOOK_S: Final = 0.2
SETTLED_LOOK_S: Final = 0.002

BEGUN: Final = "begun"
HANDED_OVER: Final = "handed over"
ENDED: Final = "ended"

_log = structlog.get_logger()


def beginning(settings: Settings) -> Settings:
    """What its successor goes by until it is restarted."""
    return replace(settings, loops=LoopSettings(watch="never"))


def begin(folder: Path) -> None:
    """Note that a move begins in the state folder ``folder``, or goes on there.

    Raises:
        ConfigError: An agent was there before; what it knew of the federation is long outdated.
    """
    path = folder / FILE
    if path.exists():
        return
    if (folder / "epoch").exists() and not damage.is_gone(path):
        what = "an agent was here before, and this one begins anew"
        raise ConfigError(f"state_dir: {folder}: {what}: name a new folder", exit_code=EX_CONFIG)
    try:
        damage.write(path, BEGUN.encode())
    except OSError as error:
        raise _unusable(path, error) from error


def forget(state: StateDir) -> None:
    """No move goes on in the state folder ``state``: a later one begins anew.

    Raises:
        ConfigError: Its file cannot be removed.
    """
    path = state.path / FILE
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise _unusable(path, error) from error
    state.inventory.note_names()


def _unusable(path: Path, error: OSError) -> ConfigError:
    text = f"state_dir: {path}: {error.strerror}: let this user write it"
    return ConfigError(text, exit_code=CANNOT_CREATE)


class Move:
    """From ``former`` to what is at the broker now.

    Args:
        former: Settings of the role that the broker had.
        state: Of the former agent.
        folder: Of the successor, which remembers how far the move is.
        book: Of what is published on the broker, by either of them.

    Attributes:
        phase: How far the move is.
    """

    def __init__(self, former: Settings, state: StateDir, folder: Path, book: StampBook) -> None:
        self._settings = _ending(former)
        self._state = state
        self._book = book
        self._path = folder / FILE
        self.phase = self._read()
        self._handover = Handover(is_done=self.phase != BEGUN)
        self._former: Agent | None = None
        self._delivery: Delivery | None = None  # of the successor
        self._may_start = asyncio.Event()  # the successor

    async def start(self, successor: Agent, tasks: asyncio.TaskGroup) -> None:
        """Start the former agent beside ``successor``, which is to be started then."""
        if self.phase == ENDED:
            _log.warning("move.over", mend="remove former")
            return
        _prepare(successor, self._handover.successor)

        async def be(own: asyncio.TaskGroup) -> None:
            await self._be(successor, own)

        tasks.create_task(with_tasks(be), name="former agent")
        await self._may_start.wait()

    async def leave(self) -> None:
        """Tell the former agent's neighbours that we go, as ``Agent.leave``."""
        if self._former is not None:
            self._give_waiting()
            await self._former.leave()

    def snapshot(self) -> dict[str, str]:
        """What an operator sees."""
        told = self._settings
        return {"from": told.role, "federation": told.federation, "phase": self.phase}

    # Inside

    async def _be(self, successor: Agent, tasks: asyncio.TaskGroup) -> None:
        """Be the former agent until nobody needs it."""
        former = self._former = Agent(self._settings, self._state, tasks, self._book)
        _prepare(former, self._handover.former)
        former.services.beside = successor.own_links
        successor.services.beside = former.own_links
        successor.services.discovery.inherit = former.services.discovery.record
        # What both bring passes over one connection: over two, what one brings could be overtaken.
        delivery = self._delivery = successor.data.path.plane.delivery
        own, delivery.link = delivery.link, former.control.data_link
        former.start()
        _log.info("move.begun", role=self._settings.role, phase=self.phase)
        await _in_time(_stands(former, SAID_S), FIRST_WAIT_S)
        if self.phase == BEGUN:
            delivery.waiting = WaitingFrames()
        self._may_start.set()
        if self.phase == BEGUN:
            await self._hand_over(successor, tasks)
        await self._end(former)
        await _settles(delivery)
        delivery.link = own
        for link in former.own_links():
            await link.close(keep_session=False)  # nobody asks for what waits under its names
        successor.services.beside = list
        successor.data.stamps.turn = None
        self._former = None
        self._go_on(ENDED)

    async def _hand_over(self, successor: Agent, tasks: asyncio.TaskGroup) -> None:
        """When ``successor`` has stood for a while, let it take what clients publish."""
        delivery = successor.data.path.plane.delivery
        delivering = tasks.create_task(_keep_delivering(delivery), name="waiting frames")
        await _stands(successor, STANDS_S)
        delivering.cancel()
        self._give_waiting()
        successor.data_connection.hold()
        self._handover.is_done = True
        self._go_on(HANDED_OVER)
        for _ in range(HELD_LOOKS):
            await asyncio.sleep(LOOK_S)
        successor.data_connection.release()

    async def _end(self, former: Agent) -> None:
        """Let the former agent bring what is kept for it, and answer for what it published."""
        keep_s = self._settings.custody.keep_s
        end_s = time.monotonic() + keep_s
        await _in_time(_stands(former, ENDS_S), keep_s)
        former.services.ask((), former.services.discovery.told)
        # Members that are away may ask for something later, and nobody knows which do.
        last_s = end_s - time.monotonic() if self._settings.role == "member" else SAID_S
        await asyncio.sleep(max(SAID_S, last_s))
        with contextlib.suppress(TimeoutError):
            await former.leave()

    def _give_waiting(self) -> None:
        """Publish what waits for the former agent to bring it."""
        if self._delivery is not None:
            self._delivery.deliver_waiting(both_clocks())

    def _go_on(self, phase: str) -> None:
        self.phase = phase
        if phase == ENDED:
            _log.info("move.ended", role=self._settings.role)
        else:
            _log.info("move.handed_over", role=self._settings.role)
        try:
            damage.write(self._path, self.phase.encode())
        except OSError as error:
            _log.warning("move.note_failed", reason=error.strerror or str(error))

    def _read(self) -> str:
        told = damage.read(self._path, _decode)
        if told is None:
            with contextlib.suppress(OSError):  # told by the next phase
                damage.write(self._path, BEGUN.encode())
        return told or BEGUN


def _decode(content: bytes) -> str:
    if (told := content.decode().strip()) not in {BEGUN, HANDED_OVER, ENDED}:
        raise ValueError(f"{told[:20]!r} is no phase of a move")
    return told


def _prepare(agent: Agent, turn: Turn) -> None:
    """Let ``agent`` know that there are two of them, and have its hub stamp what it sends."""
    agent.data.stamps.turn = turn
    agent.services.serving.decides.has_two_ways = True


async def _in_time(waiting: Coroutine[None, None, None], seconds: float) -> None:
    """``waiting``, or after so long no more."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await waiting


async def _keep_delivering(delivery: Delivery) -> None:
    """Publish what the former agent did not bring first, until cancelled."""
    while True:
        await asyncio.sleep(LOOK_S)
        delivery.look_at_waiting(both_clocks())


async def _settles(delivery: Delivery) -> None:
    """Wait until our broker has all that it was given."""
    while True:
        await asyncio.sleep(SETTLED_LOOK_S)
        if delivery.settled:
            return


async def _stands(agent: Agent, seconds: float) -> None:
    """Wait until ``agent`` has been ready, and had a link, for so long."""
    since_s = time.monotonic()
    while time.monotonic() - since_s < seconds:
        await asyncio.sleep(LOOK_S)
        if agent.services.ready.why_not() is not None or not agent.control.node.links.up:
            since_s = time.monotonic()


def _ending(former: Settings) -> Settings:
    """What the former agent goes by while its successor is there, which does all the rest."""
    return replace(
        former,
        share=ShareSettings(scope="broker"),
        loops=LoopSettings(watch="never"),
        retained=replace(former.retained, enabled=False),
        failover=AgentFailoverSettings(enabled=False),
        metrics=MetricsSettings(enabled=False),
        steer=replace(former.steer, follow=False),
        http=replace(former.http, enabled=False),
    )
