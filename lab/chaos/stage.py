"""What faults are inflicted on; what a fault is: drawn, inflicted, shown to have happened, healed.

A fault that did not happen proves nothing, so each injury looks, just before it is healed, for a
trace that only a fault leaves: a process that is gone, a connection broken, bytes swallowed. That
is the "sometimes" assertion of simulators (FoundationDB, Antithesis), on real processes.
"""

import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from federator.protocol.types import BrokerId
from lab.chaos.layout import Layout
from lab.chaos.ledger import Ledger
from lab.chaos.small_disk import SmallDisk
from lab.grid.running import RunningGrid


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

    def now_s(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self.started_s

    def span_s(self, rng: random.Random, spans_s: tuple[float, ...]) -> float:
        """How long a fault lasts: one of its class's spans. Always one draw."""
        drawn_s = rng.choice(spans_s)
        return drawn_s if self.hold_s is None else self.hold_s

    def kill_broker(self, here: BrokerId) -> None:
        """End a process by ``kill -9``."""
        self.ledger.died(here, self.now_s(), keeps=False)
        self.grid.brokers[here].kill9()

    async def stop_broker(self, here: BrokerId) -> None:
        """SIGTERM: with persistence it saves what it holds."""
        self.ledger.died(here, self.now_s(), keeps=here in self.persistent)
        await self.grid.brokers[here].stop()

    async def start_broker(self, here: BrokerId) -> None:
        """Let it come back on its port."""
        self.ledger.returns(here, self.now_s())
        await self.grid.brokers[here].start()

    def kill_agent(self, here: BrokerId) -> None:
        """End a process by ``kill -9``."""
        self.ledger.interrupted(here, self.now_s())
        self.down.add(here)
        self.grid.agents[here].kill9()

    async def start_agent(self, here: BrokerId) -> None:
        """Let it come back with its state."""
        self.ledger.goes_on(here, self.now_s())
        await self.grid.agents[here].start()
        self.down.discard(here)


def draw_persistent(ids: tuple[BrokerId, ...], rng: random.Random) -> frozenset[BrokerId]:
    """Choose half of the brokers."""
    return frozenset(rng.sample(ids, len(ids) // 2))


Act = Callable[[], Awaitable[None]]
_Done = TypeVar("_Done")


def soon(do: Callable[[], _Done]) -> Callable[[], Awaitable[_Done]]:
    """What is done at once, as something to wait for."""

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
