"""One real leaf on a real hub, whose neighbour in the mesh is a simulated world of some size.

What the leaf's agent pays for that world is read from the process itself: resident memory, and the
bytes on its link while nobody in the world changes what he wants, and while somebody does every
second. What the hub pays stands beside it.

Source: docs/hubs.md, "What it costs".
"""

import asyncio
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from federator.protocol.types import BrokerId
from lab.bench.processor import processor_s, resident_bytes
from lab.frame.experiment import Result, Tell, experiment
from lab.frame.settings import setting
from lab.grid.processes.agent import AgentProcess
from lab.grid.processes.children import get, spawn
from lab.grid.stage import DEEP, Stage
from lab.leaves.world import GATE
from lab.leaves.world_process import WorldProcess

HUB, LEAF = BrokerId(1), BrokerId(417)
SETTLE_S: Final = 10.0
MEMORY_BYTES_MAX: Final = 5_000_000
TRAFFIC_MAX: Final = 1.2
_LINK_BYTES: Final = re.compile(
    r"^federator_link_(?:sent|received)_bytes_total\{.*\} (\S+)", re.MULTILINE
)
_LAG: Final = re.compile(r"^federator_event_loop_lag_seconds (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Size:
    """How large a world is."""

    brokers: int
    filters: int


def _sizes(text: str) -> tuple[Size, ...]:
    try:
        return tuple(Size(*map(int, each.split(":"))) for each in text.split(","))
    except (TypeError, ValueError):
        raise ValueError("brokers and filters wanted, like 10:100,10000:1000000") from None


@dataclass(frozen=True, slots=True)
class Settings:
    """How large worlds are, and how much changes in them."""

    sizes: tuple[Size, ...] = setting(
        "10:100,10000:1000000",
        "Brokers and filters elsewhere, in turn.",
        option="--world",
        parse=_sizes,
    )
    seconds: float = setting(120.0, "Of each measurement; whole minutes.", 1, 86_400)
    changes_per_s: float = setting(
        1.0,
        "Times a second that a client elsewhere wants another filter, in the second one.",
        least=0,
        most=20,
        option="--changes",
    )


@dataclass(frozen=True, slots=True)
class Cost:
    """What a leaf's agent, and its hub's, paid beside a world."""

    size: Size
    announced: int  # filters that the world announced
    told: int  # filters that the hub told the leaf
    resident_bytes: int
    quiet_bytes_per_s: float  # on the leaf's link, both ways, while nothing is published
    bytes_per_s: float  # the same while what the world wants changes
    hub_resident_bytes: int
    hub_cores: float  # taken while it changes
    hub_lag_s: float  # the latest that a timer ran, while it learned of the world


@dataclass(frozen=True, slots=True)
class Outcome(Result):
    """What a leaf's agent paid beside each world."""

    costs: list[Cost]

    @property
    def held(self) -> bool:
        first, last = self.costs[0], self.costs[-1]
        quiet = sorted((first.quiet_bytes_per_s, last.quiet_bytes_per_s))
        return (
            abs(last.resident_bytes - first.resident_bytes) <= MEMORY_BYTES_MAX
            and quiet[1] <= TRAFFIC_MAX * quiet[0]
            and last.bytes_per_s <= TRAFFIC_MAX * first.bytes_per_s
        )

    def lines(self) -> Iterator[str]:
        yield " " * 41 + "leaf: bytes/s  while it  | hub:"
        yield "brokers    filters  announced   told     MB    quiet   changes |    MB  cores  lag s"
        for each in self.costs:
            yield (
                f"{each.size.brokers:>7,}  {each.size.filters:>9,}  {each.announced:>9,}  "
                f"{each.told:>5,}  {each.resident_bytes / 1e6:>5.1f}  "
                f"{each.quiet_bytes_per_s:>7.0f}  {each.bytes_per_s:>8.0f} | "
                f"{each.hub_resident_bytes / 1e6:>5.0f}  {each.hub_cores:>5.2f}  "
                f"{each.hub_lag_s:>5.2f}"
            )


async def run(settings: Settings, folder: Path, tell: Tell) -> Outcome:
    """Run a hub with a leaf beside simulated worlds, and read what the leaf's agent pays.

    The hub's neighbour is a process that announces, with the product's own nodes, what so many
    brokers want: each 100 of them by one hub, within its bound.

    Exits 0 when the last world costs at most 5 MB more or less of memory than the first, 1.2 times
    the bytes per second, or as much less, while nothing changes, and at most 1.2 times while
    something does; 1 otherwise.
    """
    how = {"changes_per_s": settings.changes_per_s, "seconds": settings.seconds}
    return Outcome([
        await cost(folder / str(each.brokers), each, **how) for each in settings.sizes
    ])  # fmt: skip


async def cost(folder: Path, size: Size, *, changes_per_s: float, seconds: float) -> Cost:
    """Measure it, with processes in ``folder``; ``seconds`` without changes, and as many with.

    Raises ``LinkError``: the leaf, or what it is told, was not there in time.
    """
    async with Stage(folder, broker_options=DEEP, spawn=spawn) as stage:
        for id in (HUB, LEAF, GATE):
            await stage.broker(id)
        hub = await stage.agent(HUB, {GATE: stage.brokers[GATE].url}, leaves=(LEAF,))
        leaf = await stage.agent(LEAF, {HUB: stage.brokers[HUB].url}, role="leaf")
        await stage.client(LEAF, "leaf-client", f"site/{LEAF}/#")
        world = await stage.beside.enter_async_context(WorldProcess(folder))
        announced = await world.begin(
            own_port=stage.brokers[GATE].port,
            hub_port=stage.brokers[HUB].port,
            hub=HUB,
            brokers=size.brokers,
            filters=size.filters,
        )
        await stage.told(
            HUB,
            lambda now: (
                now["destinations_total"] >= announced
                and not now["discovery"]["widened"]
                and now["leaves"][0]["up"]
                and now["leaves"][0]["filters_wanted"] == 1
            ),
            f"{announced} filters of the world, and one of the leaf, at the hub",
        )
        await asyncio.sleep(SETTLE_S)
        lag_s = float(_LAG.findall(await _metrics(hub))[0])
        quiet = await _bytes_per_s(leaf, seconds)
        await world.change(changes_per_s)
        before_s = processor_s([hub.pid])
        changing = await _bytes_per_s(leaf, seconds)
        hub_s = processor_s([hub.pid]) - before_s
        (seen,) = (await hub.status())["leaves"]
        return Cost(
            size,
            announced,
            seen["filters_told"],
            resident_bytes(leaf.pid),
            quiet,
            changing,
            resident_bytes(hub.pid),
            hub_s / seconds,
            lag_s,
        )


async def _bytes_per_s(leaf: AgentProcess, seconds: float) -> float:
    before, since_s = await _link_bytes(leaf), time.monotonic()
    await asyncio.sleep(seconds)
    return (await _link_bytes(leaf) - before) / (time.monotonic() - since_s)


async def _link_bytes(agent: AgentProcess) -> float:
    return sum(map(float, _LINK_BYTES.findall(await _metrics(agent))))


async def _metrics(agent: AgentProcess) -> str:
    _, page = await get(agent.http_port, "/metrics", who=f"agent {agent.config.id}")
    return page.decode()


command = experiment("leaf-cost", Settings, run)
