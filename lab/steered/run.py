"""A demand that fits, on narrow links: what clients get of it with a steerer and without one.

Six brokers in two rows. Links carry so many bits a second each way and queue 50 ms; what an agent
cannot send waits in its queue, and is lost when that is full. The flows fit, but over shortest
paths one link would have to carry more than it can. Spells without and with a steerer take turns in
one run, so that a noisy machine is noisy to both. Beside each: the same ways at a fifth of the
rates, which is what an uncongested path takes.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from federator.protocol.messages.topics import load_topic, plan_topic
from federator.protocol.types import BrokerId
from federator.runtime.mqtt.link import Inbound, MqttLink
from lab.grid.clients import Client
from lab.grid.processes.daemons import SteererProcess
from lab.grid.running import FEDERATION, RunningGrid, relay_name
from lab.grid.streams import running
from lab.grid.topology import Grid
from lab.steered.traffic import Arrived, Demand, Flows, Share, flowing

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

LIGHT: Final = 0.2
FOLLOWED_WITHIN_S: Final = 30.0

Way = tuple[BrokerId, BrokerId]


@dataclass(frozen=True, slots=True)
class Spell:
    """One spell of all flows."""

    arrived: Mapping[Demand, Arrived]
    loads_bit_per_s: Mapping[Way, float]  # bit/s on the wire, as the links counted, by direction
    control_share: float  # of a steerer's words and agents' answers, beside the data's bytes

    @property
    def lost_share(self) -> float:
        """Of all that was published."""
        return sum(a.lost for a in self.arrived.values()) / sum(
            a.sent for a in self.arrived.values()
        )

    @property
    def fullest(self) -> float:
        """The load of the fullest link over its capacity."""
        return max(self.loads_bit_per_s.values()) / CAPACITY

    def worst_ms(self, share: float) -> float:
        """That quantile of the flow that fares worst."""
        return max(each.quantile_ms(share) for each in self.arrived.values())


@dataclass(eq=False)
class Outcome:
    """Spells in the order in which they took turns."""

    plain: list[Spell] = field(default_factory=list)
    steered: list[Spell] = field(default_factory=list)
    light: list[Spell] = field(default_factory=list)  # by the planned ways, uncongested
    moved_s: list[float] = field(default_factory=list)  # from the steerer's start to its plan


class _Words(Client):
    """Counts the bytes of loads and plans at a broker."""

    bytes = 0

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        self.bytes += sum(len(packet.payload) for packet, _, _ in publishes)


class SteeredRun:
    """One run in ``folder``, which exists."""

    def __init__(
        self, folder: Path, *, seconds: float, turns: int, progress: Callable[[str], None]
    ) -> None:
        self._folder, self._seconds, self._turns = folder, seconds, turns
        self._progress = progress

    async def run(self) -> Outcome:
        """Do all of it. Raises ``LinkError``: something did not start."""
        outcome = Outcome()
        async with narrow_grid(self._folder) as grid:
            self._grid = grid
            topics = load_topic(FEDERATION), plan_topic(FEDERATION)
            self._words = [
                _Words(grid.endpoint(id), f"overhears-{id}", *topics, qos=0) for id in grid.brokers
            ]
            overhearing = running(*(each.link.run() for each in self._words))
            async with flowing(grid, DEMANDS) as flows, overhearing:
                await asyncio.sleep(KNOWN_AFTER_S)
                await flows.spell(2.0, _lightly)
                for turn in range(self._turns):
                    outcome.plain.append(await self._spell(flows))
                    self._tell(turn, "without", outcome.plain[-1])
                    async with steerer_of(grid, self._folder / f"steerer-{turn}"):
                        outcome.moved_s.append(await self._steered_within(flows))
                        outcome.steered.append(await self._spell(flows))
                        self._tell(turn, "steered", outcome.steered[-1])
                        outcome.light.append(await self._spell(flows, _lightly))
                    await grid.until(_no_plan)
        return outcome

    async def _steered_within(self, flows: Flows) -> float:
        """Go on publishing until some flow has a tree; how long that took, in seconds."""
        begun_s = time.monotonic()
        publishing = asyncio.create_task(flows.spell(FOLLOWED_WITHIN_S), name="before the plan")
        try:
            await self._grid.until(_planned, within_s=FOLLOWED_WITHIN_S)
            return time.monotonic() - begun_s
        finally:
            await publishing

    async def _spell(self, flows: Flows, share: Share = lambda demand: 1.0) -> Spell:
        before, said = await carried(self._grid), sum(each.bytes for each in self._words)
        arrived = await flows.spell(self._seconds, share)
        after = await carried(self._grid)
        loads = {way: (after[way] - before[way]) * 8 / self._seconds for way in after}
        data = sum(after[way] - before[way] for way in after)
        said = sum(each.bytes for each in self._words) - said
        return Spell(arrived, loads, said / data)

    def _tell(self, turn: int, what: str, spell: Spell) -> None:
        self._progress(
            f"turn {turn + 1}, {what}: {spell.lost_share:.1%} lost, fullest link"
            f" {spell.fullest:.0%}, worst flow p50 {spell.worst_ms(0.5):.0f} ms,"
            f" p99 {spell.worst_ms(0.99):.0f} ms"
        )


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


def _lightly(demand: Demand) -> float:
    return LIGHT


def _planned(pages: Mapping[BrokerId, Mapping[str, Any]]) -> str | None:
    """What keeps a flow from having a tree."""
    if not any(page["steering"]["trees"] for page in pages.values()):
        return "no flow has a tree"
    return None


def _no_plan(pages: Mapping[BrokerId, Mapping[str, Any]]) -> str | None:
    """Which agent still follows a plan with trees."""
    left = [here for here, page in pages.items() if page["steering"]["trees"]]
    return f"agents {left} follow trees" if left else None
