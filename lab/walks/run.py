"""The walks of ARCHITECTURE.md on real brokers and agents: the files whose functions are called.

A file counts where a step of the walk, in every round, is a function of it or calls one while it
leads to another step. What a step calls by itself counts unless agents take that step by the clock:
that is seen before anything happens.
"""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow

from federator.protocol.types import BrokerId
from lab.frame.experiment import Result, Tell, experiment
from lab.frame.settings import setting
from lab.grid.processes import children
from lab.grid.processes.children import Child, Process, Sections, python
from lab.grid.processes.daemons import CollectorProcess
from lab.grid.stage import DEEP, Stage, unlinked, widened
from lab.grid.streams import Stream, flowing
from lab.grid.waiting import until
from lab.walks.steps import CHECKOUT, place, resolve, walks
from lab.walks.traced import STEPS, TOGETHER, Noted, traced

FIRST, MIDDLE, LAST = (BrokerId(id) for id in (1, 2, 3))
LINKS: Final = {FIRST: (MIDDLE, LAST), MIDDLE: (FIRST, LAST), LAST: (FIRST, MIDDLE)}
"""A triangle: when the middle dies there is another way."""

SETTLE_S: Final = 0.5
"""After the last that a walk is seen to do: acknowledgements, and what is written behind."""
TELEMETRY: Final = {
    "metrics": {"enabled": True, "flush_ms": 200, "segment_age_ms": 500, "sample": 1}
}
IDLE_S: Final = 3.0
LANDED_S: Final = 3.0
REPORT_S: Final = 600.0
REPAIR_ROUNDS: Final = 3
DETOUR: Final = 10
"""The cost of the link that is used when the middle has died."""
TOPIC: Final = "walk"
FEDERATION: Final = 'federation = "grid"\n'

FILES_MAX: Final = {  # in the order of the walks
    "publication, at the origin": 20,
    "publication, at the destination": 18,
    "SUBSCRIBE, all agents": 32,
    "killed neighbour, both that are left": 24,
    "metric record, agent to page": 35,
}


@dataclass(frozen=True, slots=True)
class Settings:
    """How often."""

    rounds: int = setting(10, "Of each walk but the kill, which has at most 3.", 1, 100)


@dataclass(frozen=True, slots=True)
class Walk:
    """What one thing passed, at one place."""

    name: str
    files: tuple[str, ...]
    files_max: int

    @property
    def short(self) -> bool:
        return len(self.files) <= self.files_max


@dataclass(frozen=True, slots=True)
class Outcome(Result):
    """Every walk."""

    walks: tuple[Walk, ...]

    @property
    def held(self) -> bool:
        return all(walk.short for walk in self.walks)

    def lines(self) -> Iterator[str]:
        for walk in self.walks:
            yield f"{walk.name}: {len(walk.files)} files, at most {walk.files_max} are wanted"
            yield from (f"    {file}" for file in walk.files)


class Tracing:
    """Starts programs whose calls are noted, and asks them for the files.

    Args:
        folder: For what they write.
        steps: Of the walk that is looked at.
    """

    def __init__(self, folder: Path, steps: list[str]) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        places = [place(step) for step in steps]
        (folder / STEPS).write_text(json.dumps(places), encoding="utf-8")
        self._asked: dict[int, int] = {}

    def spawn(self, command: list[str], *, log: Path) -> Process:
        _python, _m, module, *arguments = command
        traced = python("lab.walks.traced", str(self.folder), module, *arguments)
        return children.spawn(traced, log=log)

    async def take(self, child: Child) -> Noted:
        """What its steps passed since the last time."""
        number = self._asked[child.pid] = self._asked.get(child.pid, -1) + 1
        file = self.folder / f"{child.pid}-{number}.json"
        os.kill(child.pid, signal.SIGUSR1)

        await until(file.exists, f"the calls of process {child.pid}")
        return calls(file)


def calls(file: Path) -> Noted:
    found: Noted = json.loads(file.read_text("utf-8"))
    return found


class Triangle(Stage):
    """Three traced agents beside their brokers."""

    def __init__(self, folder: Path, steps: list[str], more: Sections) -> None:
        self.tracing = Tracing(folder / "calls", steps)
        super().__init__(folder, broker_options=DEEP, spawn=self.tracing.spawn)
        self._more = more

    async def start(self) -> None:
        """Start all, and return once the agents are linked."""
        for id in LINKS:
            await self.broker(id)
        for id, others in LINKS.items():
            urls = {other: self.brokers[other].url for other in others}
            costs = {other: DETOUR for other in others if MIDDLE not in (id, other)}
            await self.agent(id, urls, costs=costs, more=self._more)
        await self.linked()

    async def linked(self) -> None:
        await self.until(lambda pages: unlinked(pages, LINKS) or widened(pages))

    async def window(self, agents: Iterable[BrokerId], happens: Awaitable[object]) -> list[Noted]:
        """What each of ``agents`` notes from now on until a moment after ``happens``."""
        running = [self.agents[id] for id in agents]
        for agent in running:
            await self.tracing.take(agent)
        await happens
        await asyncio.sleep(SETTLE_S)
        return [await self.tracing.take(agent) for agent in running]

    async def idle(self) -> list[Noted]:
        """What agents note while nothing happens."""
        await asyncio.sleep(SETTLE_S)
        return await self.window(LINKS, asyncio.sleep(IDLE_S))

    @contextlib.asynccontextmanager
    async def flowing(self) -> AsyncIterator[Stream]:
        """A stream from the first broker to the last one, of which something has arrived."""
        stream = self.stream(("first", FIRST), ("last", LAST))
        async with flowing([stream]):
            yield stream


def in_each(rounds: Iterable[Iterable[Noted]], idle: Iterable[Noted] = ()) -> set[str]:
    """The files that some agent passed in all rounds, without steps that were taken when idle."""
    by_the_clock = {step for noted in idle for step in noted} - {TOGETHER}
    passed = [
        {
            file
            for noted in agents
            for step, files in noted.items()
            if step not in by_the_clock
            for file in files
        }
        for agents in rounds
    ]
    return set.intersection(*passed)


async def publication(folder: Path, steps: list[str], rounds: int) -> list[set[str]]:
    """At the origin, and at the destination."""
    async with Triangle(folder, steps, {}) as triangle, triangle.flowing() as stream:
        idle = await triangle.idle()
        seen = [await triangle.window((FIRST, LAST), passes(stream)) for _ in range(rounds)]
    at_origin, at_destination = zip(*seen, strict=True)
    return [in_each(zip(at_origin), idle), in_each(zip(at_destination), idle)]


async def subscription(folder: Path, steps: list[str], rounds: int) -> list[set[str]]:
    async with Triangle(folder, steps, {}) as triangle:
        client = await triangle.client(LAST, "subscriber")
        idle = await triangle.idle()

        async def subscribes(number: int) -> None:
            client.subscribe([f"{TOPIC}/{number}"])
            await asyncio.sleep(SETTLE_S)

        seen = [await triangle.window(LINKS, subscribes(number)) for number in range(rounds)]
    return [in_each(seen, idle)]


async def repair(folder: Path, steps: list[str], rounds: int) -> list[set[str]]:
    async with Triangle(folder, steps, {}) as triangle, triangle.flowing() as stream:
        seen, idle = [], await triangle.idle()

        async def dies() -> None:
            triangle.kill(MIDDLE)
            await stream.flows()

        for _ in range(rounds):
            seen.append(await triangle.window((FIRST, LAST), dies()))
            await triangle.revive(MIDDLE)
            await triangle.linked()
    return [in_each(seen, idle)]


async def metric_record(folder: Path, steps: list[str], rounds: int) -> list[set[str]]:
    """From an agent by a collector to the page; Spark's workers fold, here this process does."""
    async with Triangle(folder, steps, TELEMETRY) as triangle:
        tracing = triangle.tracing
        urls = [broker.url for broker in triangle.brokers.values()]
        collector = CollectorProcess(
            folder / "collector",
            *urls,
            keys=FEDERATION,
            sections="[files]\nrotate_ms = 500\n",
            spawn=tracing.spawn,
        )
        seen = []
        async with collector, triangle.flowing() as stream:
            for _ in range(rounds):
                await tracing.take(collector)
                at_agent = await triangle.window((FIRST,), lands(stream))
                seen.append([*at_agent, await tracing.take(collector)])
    report = tracing.spawn(
        python("federator_analytics", "report", str(collector.landing), "--out", str(folder)),
        log=folder / "report.log",
    )
    await until(lambda: report.poll() is not None, "the report ends", deadline_s=REPORT_S)
    (counted,) = tracing.folder.glob(f"{report.pid}-*.json")
    folded = folding([place(step) for step in steps], collector.landing)
    return [in_each([*seen]) | in_each([[calls(counted), folded]])]


async def passes(stream: Stream) -> None:
    """Publish once at QoS 1, and wait until it arrives."""
    tally = stream.begin(1)
    await stream.publish(0)
    await until(lambda: tally.received, "a publication arrives")


async def lands(stream: Stream) -> None:
    """Publish until a batch of metrics is landed."""
    for _ in range(round(LANDED_S / SETTLE_S)):
        await passes(stream)
        await asyncio.sleep(SETTLE_S)


def folding(steps: list[tuple[str, str]], landing: Path) -> Noted:
    """What a worker of Spark calls to fold what has landed."""
    fold = resolve("federator_analytics.transforms.folding.fold")
    files = [path for path in landing.rglob("*") if path.is_file()]
    contents = [path.read_bytes() for path in files]
    blocks = {"content": contents, "file": [str(f) for f in files], "line": [0 for _ in files]}
    batch = pyarrow.RecordBatch.from_pydict(blocks)
    return traced(steps, lambda: list(fold([batch], {})))


async def run(settings: Settings, folder: Path, tell: Tell) -> Outcome:
    """Count the files of which a walk of docs/ARCHITECTURE.md calls a function.

    Exits 0 when no walk passes more files than its bound; 1 otherwise.
    """
    (publishes, subscribes, killed, metric) = walks().items()
    few = min(settings.rounds, REPAIR_ROUNDS)
    found = []
    for (title, steps), walk, rounds in (
        (publishes, publication, settings.rounds),
        (subscribes, subscription, settings.rounds),
        (killed, repair, few),
        (metric, metric_record, few),
    ):
        tell(title)
        found += await walk(folder / walk.__name__, steps, rounds)
    return Outcome(
        tuple(
            Walk(name, tuple(sorted(str(Path(file).relative_to(CHECKOUT)) for file in files)), most)
            for (name, most), files in zip(FILES_MAX.items(), found, strict=True)
        )
    )


command = experiment("walks", Settings, run)
