"""The bench itself: systems side by side, run by run in turn, each at its own best.

All systems are started once and stay up, idle when it is not their turn. For throughput every
system first climbs the same ladder of windows (see ``generator.saturate``) and keeps the one with
the highest rate at which nothing was lost: a bridge chain and our agents have different queues, and
one window for all would favour one of them. A measured run that loses something all the same does
not count: the window goes down a step and the run is repeated.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from federator.errors import LinkError
from federator.gateway import wire
from federator.gateway.wire import V5, V311, Kind
from lab.bench import records as r
from lab.bench.generator import Generator, Outcome
from lab.bench.processor import resident_mb
from lab.bench.records import Key, Results
from lab.bench.systems import (
    AGENTS,
    LIMIT_DIRECT,
    AgentLine,
    BrokerLine,
    Echo,
    GatewayFront,
    LimitLine,
    System,
)
from lab.bench.wire import Layout, topics
from lab.frame.settings import numbers, setting
from lab.grid.processes.children import Started
from lab.grid.trial import Progress

AT_ONCE = 50
"""Connections being made."""

ANSWER_TIMEOUT_S = 30.0
SETTLE_S = 2.0
"""What was needed only to connect is given back meanwhile."""


@contextlib.asynccontextmanager
async def idle_clients(host: str, port: int, *, count: int) -> AsyncIterator[None]:
    """``count`` clients that subscribe and then do nothing, half of each MQTT version.

    Raises ``LinkError``: one was not let in.
    """
    room = asyncio.Semaphore(AT_ONCE)
    writers: list[asyncio.StreamWriter] = []

    async def connect(number: int) -> None:
        async with room, asyncio.timeout(ANSWER_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port)
            writers.append(writer)
            version = V5 if number % 2 else V311
            hello = wire.Connect(version, f"idle-{number}", clean=True, keep_alive=600)
            wish = wire.Subscribe(1, ((f"idle/{number}", 1),))
            writer.write(wire.write_connect(hello) + wire.write_request(wish, version))
            splitter = wire.Splitter(limit=1_000, firsts=wire.FROM_SERVER)
            heard: list[int] = []
            while Kind.SUBACK not in heard:
                data = await reader.read(1_000)
                _, packets = splitter.feed(data)
                heard += [packet[0] for packet in packets]
                if not data or splitter.fault is not None:
                    raise LinkError(f"idle client {number} was not let in")

    try:
        try:
            await asyncio.gather(*(connect(number) for number in range(count)))
        except (OSError, TimeoutError) as error:
            raise LinkError(f"{len(writers)} of {count} idle clients connected: {error}") from error
        await asyncio.sleep(SETTLE_S)
        yield
    finally:
        for writer in writers:
            writer.close()


SYSTEMS: Final = ("echo", "broker", "gateway", "bridge", "limit", LIMIT_DIRECT, *AGENTS)
MOST: Final = {"windows": 60_000, "rates": 100_000, "hops": 20}
"""Windows are below the number of packet identifiers."""

PROBE_RATE: Final = 200.0
PROBE_S: Final = 0.5
PROBE_TIMEOUT_S: Final = 60.0
MILLION: Final = 1e6
NARROW: Final = 0  # in place of a rate: few messages on their way


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if unknown := sorted({*names} - {*SYSTEMS}):
        raise ValueError(f"{', '.join(unknown)}: of {', '.join(SYSTEMS)} wanted")
    return names


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured."""

    systems: tuple[str, ...] = setting(
        "echo,broker,bridge,federator,direct",
        f"Of {', '.join(SYSTEMS)}.",
        parse=_names,
        form="NAME[,NAME]",
    )
    clients: int = setting(2, "Half publish.", 2, 400)  # in pairs; the window is theirs together
    hops: tuple[int, ...] = setting("1,3", "Links to cross.", parse=numbers, form="N[,N]")
    qos: tuple[int, ...] = setting("0,1", "0, 1 or both.", parse=numbers, form="N[,N]")
    rates: tuple[int, ...] = setting("1000,10000", "For delays.", parse=numbers, form="N[,N]")
    windows: tuple[int, ...] = setting(
        "100,300,900,2000,4000,8000", "To try.", parse=numbers, form="N[,N]"
    )
    repetitions: int = setting(3, "Of every run.", 1, 100)
    seconds: float = setting(3.0, "Of every run.", 0.1, 600)
    link_delay_ms: float = setting(0.0, "Of every link, each way.", 0, 1_000)
    payload_bytes: int = setting(64, "Of every message.", 20, 2_000_000)
    warm_up_s: float = 0.5  # before it, at saturation; not counted
    climb_s: float = 0.7  # of each run on the ladder
    climbs: int = 2  # how often the ladder is climbed
    narrow: int = 100  # messages on their way, where a few must do for all systems alike

    def __post_init__(self) -> None:
        if self.clients % 2:
            raise ValueError("--clients: an even number wanted, for they come in pairs")
        if not {*self.qos} <= {0, 1}:
            raise ValueError("--qos: 0, 1 or both wanted")
        for name, most in MOST.items():
            if not all(1 <= each <= most for each in getattr(self, name)):
                raise ValueError(f"--{name}: 1 to {most} wanted")

    def make_systems(self, folder: Path) -> list[System]:
        made: list[System] = []
        if "echo" in self.systems and self.clients == 2:  # it has room for no more
            made.append(Echo(folder / "echo"))
        if "broker" in self.systems:
            made.append(BrokerLine(folder / "broker", hops=0))
        if "gateway" in self.systems:
            made.append(GatewayFront(folder / "gateway"))
        for hops in self.hops:
            line: dict[str, Any] = {"hops": hops, "link_delay_ms": self.link_delay_ms}
            if "bridge" in self.systems:
                made.append(BrokerLine(folder / f"bridge-{hops}", **line))
            limits = [name for name in ("limit", LIMIT_DIRECT) if name in self.systems]
            made += [LimitLine(folder / f"{name}-{hops}", name=name, **line) for name in limits]
            agents = [name for name in AGENTS if name in self.systems]
            made += [AgentLine(folder / f"{name}-{hops}", name=name, **line) for name in agents]
        return made


@dataclass(slots=True)
class _Subject:
    """A system under one QoS, with its load generator and its window."""

    system: System
    key: Key
    generator: Generator
    window: int = 0


class Experiment(Started):
    """One bench, whose configurations, state and logs are in ``folder``.

    Attributes:
        results: The figures so far.
        faults: What was lost, came twice or was not ours, in a run where nothing of it may be.
    """

    def __init__(self, plan: Plan, folder: Path, *, progress: Progress) -> None:
        self.results = Results()
        self.faults: list[str] = []
        self._plan = plan
        self._folder = folder
        self._progress = progress
        self._systems = plan.make_systems(folder)
        self._subjects: list[_Subject] = []

    async def start(self) -> None:
        for done, system in enumerate(self._systems):
            self._progress("starting", done, len(self._systems))
            await system.start()
            if isinstance(system, GatewayFront):
                await self._measure_idle(system)
            for qos in self._plan.qos:
                if system.name == "echo" and qos:
                    continue
                key = Key(system.name, system.hops, qos)
                layout = Layout(f"bench/qos{qos}", qos, self._plan.payload_bytes)
                name = f"bench-{system.name}-{system.hops}-{qos}"
                pairs = self._plan.clients // 2
                subject = _Subject(system, key, Generator(self._folder, name, pairs=pairs))
                self._subjects.append(subject)
                await subject.generator.connect(system.ends, layout)
                for topic in topics(layout.topic, pairs):
                    await system.stands(topic)
                await self._probe(subject)
        self._progress("starting", len(self._systems), len(self._systems))

    async def _measure_idle(self, gateway: GatewayFront) -> None:
        """Memory of a gateway before it has carried anything, with many clients and without."""
        key = Key(gateway.name, gateway.hops, 0)
        (pid,) = (process.pid for process in gateway.at_work)
        self.results.add(key, r.RESIDENT, resident_mb(pid))
        async with idle_clients(*gateway.ends.publish_at, count=r.IDLE_CLIENTS):
            self.results.add(key, r.RESIDENT_IDLE, resident_mb(pid))

    async def _probe(self, subject: _Subject) -> None:
        deadline = time.monotonic() + PROBE_TIMEOUT_S
        probing = {"rate": PROBE_RATE, "seconds": PROBE_S}
        while not (probe := await subject.generator.run("pace", **probing)).exact:
            if time.monotonic() > deadline:
                raise LinkError(f"{subject.key}: {probe.lost} of {probe.sent} probes were lost")

    async def run(self) -> Results:
        await self._climb()
        works = [*self._works()]
        total = len(works) * self._plan.repetitions
        for done in range(total):
            self._progress("measuring", done, total)
            subject, work = works[done % len(works)]
            if work is None:
                await self._saturate(subject)
            elif work == NARROW:
                await self._saturate_narrowly(subject)
            else:
                await self._pace(subject, work)
        self._progress("measuring", total, total)
        return self.results

    def _works(self) -> Iterator[tuple[_Subject, int | None]]:
        """One repetition: what is to be compared runs one after the other."""
        works = (None, NARROW, *self._plan.rates)
        for qos in self._plan.qos:
            for work in works:
                for subject in self._subjects:
                    if subject.key.qos == qos:
                        yield subject, work

    async def _climb(self) -> None:
        """Choose each subject's window: the fastest of those below the first that loses."""
        done, total = 0, len(self._subjects) * self._plan.climbs
        rates: dict[tuple[Key, int], float] = {}
        for _ in range(self._plan.climbs):
            for subject in self._subjects:
                self._progress("finding windows", done, total)
                done += 1
                for window in self._plan.windows:
                    how = {"seconds": self._plan.climb_s, "warm_up_s": self._plan.climb_s / 3}
                    got = await subject.generator.run("saturate", window=window, **how)
                    before = rates.get((subject.key, window), 0.0)
                    lossy = bool(got.lost) or before < 0
                    rates[subject.key, window] = -1.0 if lossy else max(before, got.rate)
                    if lossy:
                        break
        self._progress("finding windows", total, total)
        for subject in self._subjects:
            climbed = [(rates.get((subject.key, w), -1.0), w) for w in self._plan.windows]
            safe = [step for step in climbed if step[0] >= 0]
            subject.window = max(safe)[1] if safe else self._plan.windows[0]

    async def _saturate(self, subject: _Subject) -> None:
        plan, steps = self._plan, 0
        how = {"seconds": plan.seconds, "warm_up_s": plan.warm_up_s}
        while True:
            before = np.array(subject.system.processor_s())
            got = await subject.generator.run("saturate", window=subject.window, **how)
            spent = np.array(subject.system.processor_s()) - before
            smaller = [window for window in plan.windows if window < subject.window]
            if not got.lost or not smaller:
                break
            subject.window = smaller[-1]
            steps += 1
        self._check(subject, "saturation", got)
        add = self.results.add
        add(subject.key, r.THROUGHPUT, got.rate)
        add(subject.key, r.WINDOW, subject.window)
        add(subject.key, r.STEPS_DOWN, steps)
        add(subject.key, r.GENERATOR_SHARE, got.cpu_share)
        add(subject.key, r.DISORDERED, got.disordered)
        self._add_processor(subject, "saturation", got, spent)

    async def _saturate_narrowly(self, subject: _Subject) -> None:
        plan = self._plan
        got = await subject.generator.run(
            "saturate", window=plan.narrow, seconds=plan.seconds, warm_up_s=plan.warm_up_s
        )
        self._check(subject, f"window {plan.narrow}", got)
        self.results.add(subject.key, r.NARROW, got.rate)

    async def _pace(self, subject: _Subject, rate: int) -> None:
        before = np.array(subject.system.processor_s())
        got = await subject.generator.run("pace", rate=rate, seconds=self._plan.seconds)
        spent = np.array(subject.system.processor_s()) - before
        self._check(subject, f"{rate}/s", got)
        add = self.results.add
        add(subject.key, f"delay_p50_at_{rate}", got.delay_us_p50, "us")
        add(subject.key, f"delay_p99_at_{rate}", got.delay_us_p99, "us")
        add(subject.key, f"late_at_{rate}", got.late, "msg")
        self._add_processor(subject, f"{rate}", got, spent)

    def _add_processor(
        self, subject: _Subject, when: str, got: Outcome, spent: NDArray[np.float64]
    ) -> None:
        for who, seconds in zip(("broker", "agent"), spent.tolist(), strict=True):
            each = seconds / max(1, got.sent) * MILLION
            self.results.add(subject.key, f"{who}_cpu_at_{when}", seconds, "s")
            self.results.add(subject.key, f"{who}_cpu_per_million_at_{when}", each, "s")

    def _check(self, subject: _Subject, when: str, got: Outcome) -> None:
        if not got.exact:
            self.faults.append(
                f"{subject.key} at {when}: of {got.sent} publications {got.lost} lost, "
                f"{got.duplicates} twice, {got.foreign} foreign"
            )

    async def stop(self) -> None:
        await asyncio.gather(*(subject.generator.stop() for subject in self._subjects))
        await asyncio.gather(*(system.stop() for system in self._systems))
