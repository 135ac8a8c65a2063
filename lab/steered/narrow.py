"""Six brokers whose links carry so many bits a second and no more, and what flows suffer on them.

The brokers stand in two rows. Links queue 50 ms; what an agent cannot send waits in its queue, and
is lost when that is full.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from federator.protocol.types import BrokerId
from lab.grid.processes.daemons import SteererProcess
from lab.grid.running import FEDERATION, RunningGrid, relay_name
from lab.grid.topology import Grid
from lab.steered.traffic import Arrived, Demand

GRID: Final = Grid(2, 3)
CAPACITY: Final = 2_000_000
"""bit/s of a link, each way."""

DEMANDS: Final = (
    Demand(BrokerId(0), BrokerId(2), 900_000),
    Demand(BrokerId(0), BrokerId(2), 600_000),
    Demand(BrokerId(1), BrokerId(2), 700_000),
    Demand(BrokerId(3), BrokerId(5), 500_000),
    Demand(BrokerId(5), BrokerId(0), 400_000),
)
"""0 to 2 and 1 to 2 want 115 % of link 1-2, with what frames add; the other row has room."""

QUEUE_S: Final = 0.05
SEND_QUEUE_BYTES: Final = 65_536
KNOWN_AFTER_S: Final = 3.0
"""Until all agents know who wants what."""

FULLEST_MAX: Final = 0.95
"""Of a link's capacity: what a steerer may leave on it."""

Way = tuple[BrokerId, BrokerId]


@dataclass(frozen=True, slots=True)
class Spell:
    """One spell of all flows."""

    arrived: Mapping[Demand, Arrived]
    loads_bit_per_s: Mapping[Way, float]  # bit/s on the wire, as the links counted, by direction
    control_share: float  # of a steerer's words and agents' answers, beside the data's bytes

    @property
    def lost_share(self) -> float:
        return sum(a.lost for a in self.arrived.values()) / sum(
            a.sent for a in self.arrived.values()
        )

    @property
    def fullest(self) -> float:
        return max(self.loads_bit_per_s.values()) / CAPACITY

    def worst_ms(self, share: float) -> float:
        return max(each.quantile_ms(share) for each in self.arrived.values())


@contextlib.asynccontextmanager
async def narrow_grid(folder: Path) -> AsyncIterator[RunningGrid]:
    """The brokers and agents, whose links carry ``CAPACITY`` and no more.

    Raises:
        LinkError: Something did not start.
    """
    options: dict[str, dict[str, Any]] = {
        "routing": {"strategy": "shortest-path"},
        "links": {"dial_back": False, "send_queue_bytes_max": SEND_QUEUE_BYTES},
    }
    made = RunningGrid(
        GRID,
        folder,
        link_delay_ms=2.0,
        agent_options=options,
        # What waits shall wait for a link, and not for a client's acknowledgement.
        broker_options=("set_tcp_nodelay true",),
        capacity=CAPACITY,
    )
    async with made as grid:
        await grid.order("narrow", *GRID.links, bytes_per_s=CAPACITY / 8, queue_s=QUEUE_S)
        yield grid


def steerer_of(grid: RunningGrid, folder: Path, *options: str) -> SteererProcess:
    """A steerer of all brokers, not started yet."""
    urls = (broker.url for broker in grid.brokers.values())
    keys = f'federation = "{FEDERATION}"'
    return SteererProcess(folder, *urls, options=options, keys=keys)


async def carried(grid: RunningGrid) -> dict[Way, int]:
    """Bytes that each direction of each link carried: what its two relays handed on."""
    found: dict[Way, int] = {}
    for link in GRID.links:
        for here, there in ((link.a, link.b), (link.b, link.a)):
            counters = await grid.relays.counters(relay_name(here, there))
            found[here, there] = found.get((here, there), 0) + counters["forth"]
            found[there, here] = found.get((there, here), 0) + counters["back"]
    return found


async def rates_over(grid: RunningGrid, seconds: float) -> dict[Way, float]:
    """What the links carry from now on, bit/s."""
    before, begun_s = await carried(grid), time.monotonic()
    await asyncio.sleep(seconds)
    after, took_s = await carried(grid), time.monotonic() - begun_s
    return {way: (after[way] - before[way]) * 8 / took_s for way in after}
