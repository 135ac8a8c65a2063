"""A broker that changes its role, from leaf to member or back, without losing data.

For a while two agents are beside the broker. The **former** agent starts first, as it was: what its
clients published, its log and the data kept for it get delivered. Beside it the **successor**
joins, and both bring what clients want; stamps identify the duplicates. When the successor has been
ready for a while, so that interest has spread in both directions, it takes over what clients
publish. The former agent goes on while others may request its data, and then ends for good.

Source: docs/hubs.md, "Moving"; ``protocol.leaves.handover``.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
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
from federator.protocol.data.delivery import Delivery
from federator.protocol.discovery import DiscoveryRecord
from federator.protocol.leaves.handover import Handover
from federator.runtime.leaves.role import BrokerAgent, OtherAgent
from federator.runtime.mqtt.link import MqttLink
from federator.runtime.process.clocks import both_clocks
from federator.runtime.process.serving import with_tasks
from federator.runtime.storage import damage
from federator.runtime.storage.durable import CANNOT_CREATE
from federator.runtime.storage.state_dir import StateDir

FILE: Final = "move"

FIRST_WAIT_S: Final = 10.0
"""How long the successor waits for the former agent's link, over which stamps are requested."""

STANDS_S: Final = 15.0
"""How long the successor is ready before it takes over: tails come every 10 s."""

ENDS_S: Final = 30.0
"""How long the former agent, with a link, then delivers what is kept for it."""

HELD_LOOKS: Final = 15
"""How long clients' publications wait then: what the former agent took is to arrive first. It sends
nothing while this process stands still, so looks are counted, not time."""

ARRIVES_S: Final = 1.0
"""After this long, the other end of a link has received what we sent."""

LOOK_S: Final = 0.2
SETTLED_LOOK_S: Final = 0.002

BEGUN: Final = "begun"
HANDED_OVER: Final = "handed over"
ENDED: Final = "ended"

_log = structlog.get_logger()


def beginning(settings: Settings) -> Settings:
    """The settings of the successor until its next restart."""
    return replace(settings, loops=LoopSettings(watch="never"))


def begin(folder: Path) -> None:
    """Note that a move begins, or goes on, in the state folder ``folder``.

    Raises:
        ConfigError: An agent used the folder before; its state is long outdated.
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
    """End any move in the state folder ``state``: a later one begins anew.

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


MakeFormer = Callable[[Settings, asyncio.TaskGroup, OtherAgent], BrokerAgent]


class Move:
    """The move from ``former`` to the agent that is at the broker now.

    Args:
        former: Settings of the broker's earlier role.
        folder: State folder of the successor, which stores the phase of the move.
        make: Makes the former agent in a task group.

    Attributes:
        phase: How far the move is.
    """

    def __init__(self, former: Settings, folder: Path, make: MakeFormer) -> None:
        self._settings = _ending(former)
        self._make = make
        self._path = folder / FILE
        self.phase = self._read()
        self._handover = Handover(is_done=self.phase != BEGUN)
        self._former: BrokerAgent | None = None
        self._delivery: Delivery | None = None  # of the successor
        self._may_start = asyncio.Event()  # the successor

    @property
    def former(self) -> OtherAgent | None:
        """The former agent, for its successor to be made with; ``None``: it has ended."""
        if self.phase == ENDED:
            return None
        turn = self._handover.successor
        return OtherAgent(turn, self._former_links, self._former_record)

    def _former_links(self) -> list[MqttLink]:
        return [] if self._former is None else self._former.own_links()

    def _former_record(self) -> DiscoveryRecord | None:
        return None if self._former is None else self._former.record()

    async def start(self, successor: BrokerAgent, tasks: asyncio.TaskGroup) -> None:
        """Start the former agent beside ``successor``, which is to be started then."""
        if self.phase == ENDED:
            _log.warning("move.over", mend="remove former")
            return

        async def be(own: asyncio.TaskGroup) -> None:
            await self._be(successor, own)

        tasks.create_task(with_tasks(be), name="former agent")
        await self._may_start.wait()

    async def leave(self) -> None:
        """Send byes to the former agent's neighbours, as ``Agent.leave``."""
        if self._former is not None:
            self._give_waiting()
            await self._former.leave()

    def snapshot(self) -> dict[str, str]:
        """The move as shown to operators."""
        former = self._settings
        return {"from": former.role, "federation": former.federation, "phase": self.phase}

    # Inside

    async def _be(self, successor: BrokerAgent, tasks: asyncio.TaskGroup) -> None:
        """Run the former agent until it is no longer needed."""
        other = OtherAgent(self._handover.former, successor.own_links)
        former = self._former = self._make(self._settings, tasks, other)
        # Both deliver over one connection: with two, one agent's data could be overtaken.
        delivery = self._delivery = successor.path.delivery
        own = delivery.publish_over(former.path.delivery.link)
        former.start()
        _log.info("move.begun", role=self._settings.role, phase=self.phase)
        await _in_time(_stands(former, ARRIVES_S), FIRST_WAIT_S)
        if self.phase == BEGUN:
            delivery.wait()
        self._may_start.set()
        if self.phase == BEGUN:
            await self._hand_over(successor, tasks)
        await self._end(former)
        await _settles(delivery)
        delivery.publish_over(own)
        for link in former.own_links():
            # The sessions under its names are no longer needed.
            await link.close(keep_session=False)
        successor.end_handover()
        self._former = None
        self._go_on(ENDED)

    async def _hand_over(self, successor: BrokerAgent, tasks: asyncio.TaskGroup) -> None:
        """When ``successor`` has been ready for a while, let it take what clients publish."""
        delivery = successor.path.delivery
        delivering = tasks.create_task(_keep_delivering(delivery), name="waiting frames")
        await _stands(successor, STANDS_S)
        delivering.cancel()
        self._give_waiting()
        successor.hold()
        self._handover.is_done = True
        self._go_on(HANDED_OVER)
        for _ in range(HELD_LOOKS):
            await asyncio.sleep(LOOK_S)
        successor.release()

    async def _end(self, former: BrokerAgent) -> None:
        """Let the former agent deliver what is kept for it, and answer repair requests."""
        keep_s = self._settings.custody.keep_s
        end_s = time.monotonic() + keep_s
        await _in_time(_stands(former, ENDS_S), keep_s)
        former.ask_for_nothing()
        # Absent members may send requests later, and we do not know which.
        last_s = end_s - time.monotonic() if self._settings.role == "member" else ARRIVES_S
        await asyncio.sleep(max(ARRIVES_S, last_s))
        with contextlib.suppress(TimeoutError):
            await former.leave()

    def _give_waiting(self) -> None:
        """Publish what waits for the former agent to deliver it."""
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
        phase = damage.read(self._path, _decode)
        if phase is None:
            with contextlib.suppress(OSError):  # the next phase would report the error
                damage.write(self._path, BEGUN.encode())
        return phase or BEGUN


def _decode(content: bytes) -> str:
    if (phase := content.decode().strip()) not in {BEGUN, HANDED_OVER, ENDED}:
        raise ValueError(f"{phase[:20]!r} is no phase of a move")
    return phase


async def _in_time(waiting: Coroutine[None, None, None], seconds: float) -> None:
    """Await ``waiting``, at most ``seconds``."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await waiting


async def _keep_delivering(delivery: Delivery) -> None:
    """Publish what the former agent did not deliver first, until cancelled."""
    while True:
        await asyncio.sleep(LOOK_S)
        delivery.look_at_waiting(both_clocks())


async def _settles(delivery: Delivery) -> None:
    """Wait until our broker has received everything we gave it."""
    while True:
        await asyncio.sleep(SETTLED_LOOK_S)
        if delivery.settled:
            return


async def _stands(agent: BrokerAgent, seconds: float) -> None:
    """Wait until ``agent`` has been ready, and had a link, for ``seconds``."""
    since_s = time.monotonic()
    while time.monotonic() - since_s < seconds:
        await asyncio.sleep(LOOK_S)
        if not agent.is_ready():
            since_s = time.monotonic()


def _ending(former: Settings) -> Settings:
    """The settings of the former agent beside its successor, which does all the rest."""
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
