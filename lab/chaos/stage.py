"""What faults are inflicted on; what a fault is: drawn, inflicted, shown to have happened, healed.

A fault that did not happen proves nothing, so each injury looks, just before it is healed, for a
trace that only a fault leaves: a process that is gone, a connection broken, bytes swallowed. That
is the "sometimes" assertion of simulators (FoundationDB, Antithesis), on real processes.

A disk that can be full at a word is a ``tmpfs``, mounted on an agent's state folder before the
agent starts. It is filled by shrinking it to what it holds: the next block that is asked for fails
with ENOSPC, as on a full disk, while what is written stays. Mounting takes root; ``available``
tells whether we may.
"""

import contextlib
import errno
import os
import random
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from federator.errors import LinkError
from federator.protocol.types import BrokerId
from lab.chaos.layout import Layout
from lab.chaos.ledger import Ledger
from lab.chaos.traffic import Traffic
from lab.grid.processes.namespace import run
from lab.grid.running import RunningGrid

ROOMY: Final = "256m"
COMMAND_TIMEOUT_S: Final = 10.0
_run = partial(run, within_s=COMMAND_TIMEOUT_S)
PROBE_BYTES: Final = 65_536
"""A block or more."""


def available() -> bool:
    if os.geteuid() != 0:
        return False
    with tempfile.TemporaryDirectory(prefix="federator-disk-") as folder:
        disk = SmallDisk(Path(folder))
        try:
            disk.mount()
        except LinkError:
            return False
        disk.unmount()
    return True


@dataclass(frozen=True, slots=True)
class SmallDisk:
    """A ``tmpfs`` on ``folder``."""

    folder: Path

    def mount(self) -> None:
        """Put it there, empty. Raises ``LinkError``: the system does not let us."""
        self.folder.mkdir(parents=True, exist_ok=True)
        _run("mount", "-t", "tmpfs", "-o", f"size={ROOMY}", "federator-chaos", str(self.folder))

    def fill(self) -> None:
        found = os.statvfs(self.folder)
        used = (found.f_blocks - found.f_bfree) * found.f_frsize
        self._resize(str(max(used, found.f_frsize)))

    def is_full(self) -> bool:
        probe = self.folder / "probe"
        try:
            probe.write_bytes(bytes(PROBE_BYTES))
        except OSError as error:
            return error.errno == errno.ENOSPC
        finally:
            probe.unlink(missing_ok=True)
        return False

    def empty(self) -> None:
        self._resize(ROOMY)

    def _resize(self, size: str) -> None:
        _run("mount", "-o", f"remount,size={size}", str(self.folder))

    def unmount(self, *, keep: bool = False) -> None:
        """Take it away; ``keep``: its files go to the folder below."""
        beside = self.folder.with_name(self.folder.name + ".kept")
        if keep:
            with contextlib.suppress(OSError, shutil.Error):
                shutil.copytree(self.folder, beside, dirs_exist_ok=True)
        _run("umount", str(self.folder))
        if keep and beside.is_dir():
            shutil.copytree(beside, self.folder, dirs_exist_ok=True)
            shutil.rmtree(beside)


@dataclass(slots=True)
class Stage:
    """A run's grid and books."""

    grid: RunningGrid
    layout: Layout
    ledger: Ledger
    persistent: frozenset[BrokerId]  # brokers that keep sessions and queues over a clean stop
    disks: dict[BrokerId, SmallDisk]  # agents whose state folder is a small file system of its own
    down: set[BrokerId]  # agents that are dead on purpose
    started_s: float
    hold_s: float | None = None  # how long every fault lasts, instead of a span of its class
    traffic: Traffic = field(init=False)  # set once there is a clock

    def now_s(self) -> float:
        return time.monotonic() - self.started_s

    def span_s(self, rng: random.Random, spans_s: tuple[float, ...]) -> float:
        """How long a fault lasts: one of its class's spans. Always one draw."""
        drawn_s = rng.choice(spans_s)
        return drawn_s if self.hold_s is None else self.hold_s

    def kill_broker(self, here: BrokerId) -> None:
        self.ledger.died(here, self.now_s(), keeps=False)
        self.grid.brokers[here].kill9()

    async def stop_broker(self, here: BrokerId) -> None:
        self.ledger.died(here, self.now_s(), keeps=here in self.persistent)
        await self.grid.brokers[here].stop()

    async def start_broker(self, here: BrokerId) -> None:
        self.ledger.returns(here, self.now_s())
        await self.grid.brokers[here].start()

    def kill_agent(self, here: BrokerId) -> None:
        self.ledger.interrupted(here, self.now_s())
        self.down.add(here)
        self.grid.agents[here].kill9()

    async def start_agent(self, here: BrokerId) -> None:
        self.ledger.goes_on(here, self.now_s())
        await self.grid.agents[here].start()
        self.down.discard(here)


def draw_persistent(ids: tuple[BrokerId, ...], rng: random.Random) -> frozenset[BrokerId]:
    return frozenset(rng.sample(ids, len(ids) // 2))


Act = Callable[[], Awaitable[None]]
_Done = TypeVar("_Done")


def soon(do: Callable[[], _Done]) -> Callable[[], Awaitable[_Done]]:
    async def acted() -> _Done:
        return do()

    return acted


@dataclass(frozen=True, slots=True)
class Injury:
    """One fault to inflict."""

    kind: str  # its class
    victims: frozenset[str]  # what it touches: injuries of one time do not share victims
    detail: str  # which way, how long
    hold_s: float  # between ``inflict`` and ``heal``
    inflict: Act
    heal: Act
    felt: Callable[[], Awaitable[bool]]  # asked before ``heal``: whether the fault left its trace

    def __str__(self) -> str:
        return f"{' '.join([self.kind, ', '.join(sorted(self.victims))]).strip()}: {self.detail}"


Draw = Callable[[Stage, random.Random], Injury]


@dataclass(frozen=True, slots=True)
class Kind:
    """A fault class."""

    name: str
    what: str  # one line for people
    draw: Draw
    # Why it cannot be drawn on such a stage; empty when it can.
    lacks: Callable[[Stage], str] = lambda stage: ""
