"""What faults are inflicted on: the grid, who has which role, and who must be told."""

import random
import time
from dataclasses import dataclass

from federator.grid.chaos.layout import Layout
from federator.grid.chaos.ledger import Ledger
from federator.grid.chaos.small_disk import SmallDisk
from federator.grid.running import RunningGrid
from federator.protocol.types import BrokerId


@dataclass(slots=True)
class Stage:
    """A run's grid and books.

    Attributes:
        persistent: Brokers that keep sessions and queues over a clean stop.
        disks: Agents whose state folder is a small file system of its own.
        down: Agents that are dead on purpose.
        hold_s: How long every fault lasts, instead of a span of its class.
    """

    grid: RunningGrid
    layout: Layout
    ledger: Ledger
    persistent: frozenset[BrokerId]
    disks: dict[BrokerId, SmallDisk]
    down: set[BrokerId]
    started_s: float
    hold_s: float | None = None

    def now_s(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self.started_s

    def span_s(self, rng: random.Random, spans_s: tuple[float, ...]) -> float:
        """How long a fault lasts: one of its class's spans. Always one draw."""
        drawn_s = rng.choice(spans_s)
        return drawn_s if self.hold_s is None else self.hold_s

    def kill_broker(self, here: BrokerId) -> None:
        """``kill -9``."""
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
        """``kill -9``."""
        self.down.add(here)
        self.grid.agents[here].kill9()

    async def start_agent(self, here: BrokerId) -> None:
        """Let it come back with its state."""
        await self.grid.agents[here].start()
        self.down.discard(here)


def draw_persistent(ids: tuple[BrokerId, ...], rng: random.Random) -> frozenset[BrokerId]:
    """Half of the brokers."""
    return frozenset(rng.sample(ids, len(ids) // 2))
