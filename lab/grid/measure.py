"""Runs a scenario on real processes and gathers the figures of the paper's Tables 2 and 3.

The federated runs come first, one after the other, with nothing else under way. The centralised
runs follow together: each has its own broker, relay and clients, a dozen messages a second.

A centralised run has one broker with both subscribers beside it; the publisher reaches it over one
relay whose delay is the sum of the links on the shortest path. The paper counts so too: its
subscriber A sees the same delay as the federation gives over that path.

Source: Spohn 2021, 7 (Tables 2 and 3) and theorem 1.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from federator.errors import LinkError
from federator.protocol.parameters import Strategy
from federator.protocol.types import BrokerId
from federator.runtime.process.clocks import monotonic_ms, wall_clock_us
from lab.grid.clients import FIRST_PUBLISHER, ClientProcess
from lab.grid.processes.broker import BrokerProcess
from lab.grid.processes.relay_process import RelayProcess
from lab.grid.reporting import Run
from lab.grid.running import RunningGrid
from lab.grid.scenario import Scenario
from lab.grid.topology import (
    Announced,
    Mesh,
    Statuses,
    announced,
    announcement_bound,
    announcement_flood,
    expected_mesh,
    mesh_fault,
    next_hops,
    observed_mesh,
    total_control_sent,
)
from lab.grid.trial import Delivery, Progress, deliveries, publications_of


@dataclass(frozen=True, slots=True)
class Announcements:
    """What announcing cost since the first federated run."""

    count: int  # core announcements made
    messages: int  # publications that carried them
    flood: int  # publications of one announcement when all links delay alike
    bound: int  # Theorem 1: twice the number of links

    @property
    def per_announcement(self) -> float:
        return self.messages / self.count


Named = tuple[str, Delivery]
"""One row of a table: ``A`` and ``B`` beside a single broker, else the broker's id."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything one scenario gave."""

    scenario: Scenario
    mesh: Mesh  # as the agents describe it
    relayed_to: tuple[BrokerId, ...]  # where the publisher's broker sends
    federated: list[Named]
    centralised: list[Named]
    announcements: Announcements | None  # ``None`` when they could not be counted
    control_sent: dict[str, int]  # control messages of all agents since their start, by kind
    # What is not as it must be, a line each; empty when all is well.
    faults: list[str] = field(default_factory=list)


def delivery_faults(deliveries: list[Named]) -> list[str]:
    return [
        f"{d.arrivals.sent} publications to {name} at broker {d.subscriber}: {d.arrivals}"
        for name, d in deliveries
        if not d.arrivals.exact
    ]


def differences_from_source(scenario: Scenario, mesh: Mesh) -> list[str]:
    return [
        f"broker {here} has parents {mesh.parents.get(here, ())}; the source gives {parents}"
        for here, parents in scenario.parents.items()
        if mesh.parents.get(here) != parents
    ]


def announcement_faults(announcements: Announcements | None) -> list[str]:
    if announcements is None or announcements.messages <= announcements.bound * announcements.count:
        return []
    return [
        f"{announcements.per_announcement:.1f} messages per core announcement: at most "
        f"{announcements.bound} wanted"
    ]


TOPIC: Final = "grid/measurement"
SEED: Final = 2021
CALM_S: Final = 0.3
"""Counters that stay the same for so long are not in the middle of a flood."""

DEPOSED_S: Final = 16.0
"""After it, a core that was deposed while the mesh formed is forgotten: 3 intervals of 5 s."""

ANNOUNCED_TIMEOUT_S: Final = 30.0


class Measurement:
    """A scenario's clients on a running grid, which is started and of the scenario's shape.

    ``runs``: the federated runs so far, as records for ``write_clients``.
    """

    def __init__(
        self, scenario: Scenario, running: RunningGrid, *, progress: Progress = lambda *_: None
    ) -> None:
        self.scenario = scenario
        self.running = running
        wanted, redundancy = scenario.subscribers, scenario.redundancy
        self.expected = expected_mesh(scenario.grid, wanted, redundancy=redundancy)
        self._progress = progress
        self._statuses: Statuses = {}
        self._forgotten_at_s = 0.0
        self._clients = ClientProcess(running.folder, "federated")
        self.runs: list[Run] = []

    async def subscribe(self) -> None:
        """Connect the clients and wait until the mesh stands.

        Raises ``LinkError``: it does not become the one that the graph gives.
        """
        brokers = self.running.brokers
        await self._clients.start()
        await self._clients.connect(
            {FIRST_PUBLISHER: brokers[self.scenario.publisher].place},
            {str(i): brokers[i].place for i in self.scenario.subscribers},
            TOPIC,
            qos=self.scenario.qos,
        )
        self._statuses = await self.running.until(
            lambda statuses: mesh_fault(statuses, TOPIC, self.expected)
        )
        self._forgotten_at_s = time.monotonic() + DEPOSED_S

    @property
    def mesh(self) -> Mesh:
        return observed_mesh(self._statuses, TOPIC)

    @property
    def relayed_to(self) -> tuple[BrokerId, ...]:
        return next_hops(self._statuses, TOPIC, self.scenario.publisher)

    async def run(self) -> Outcome:
        """All federated runs, then the centralised ones. What goes wrong is a fault, not an error:
        the figures so far are worth seeing.
        """
        federated: list[Named] = []
        before: Announced | None = None
        faults: list[str] = []
        announcements: Announcements | None = None
        try:
            for number, publications in enumerate(self.scenario.runs):
                federated += await self._federated(publications, seed=SEED + number)
                before = before or await self._calm()
            assert before is not None, "a scenario has a run"
            self._progress("counting core announcements", 0, 1)
            after = await self._calm(later_than=before)
            self._progress("counting core announcements", 1, 1)
            announcements = Announcements(
                count=after.made - before.made,
                messages=after.messages - before.messages,
                flood=announcement_flood(self.scenario.grid),
                bound=announcement_bound(self.scenario.grid),
            )
            self._statuses = await self.running.statuses()
            if fault := mesh_fault(self._statuses, TOPIC, self.expected):
                faults.append(f"after the runs, {fault}")
        except LinkError as error:
            faults.append(str(error))
        mesh = self.mesh
        centralised = await self._all_centralised()
        faults += delivery_faults([*federated, *centralised])
        faults += announcement_faults(announcements)
        faults += differences_from_source(self.scenario, mesh)
        return Outcome(
            scenario=self.scenario,
            mesh=mesh,
            relayed_to=self.relayed_to,
            federated=federated,
            centralised=centralised,
            announcements=announcements,
            control_sent=total_control_sent(self._statuses),
            faults=faults,
        )

    async def stop(self) -> None:
        await self._clients.stop()

    async def _federated(self, publications: int, *, seed: int) -> list[Named]:
        what = f"{publications} publications, federated"
        begun_us, begun_ms = wall_clock_us(), monotonic_ms()
        arrivals = await self._clients.run(
            publications_of(self.scenario, publications, seed),
            progress=lambda sent: self._progress(what, sent, publications),
        )
        self._progress(what, publications, publications)
        found = list(deliveries(self.scenario, self.scenario.publisher, arrivals))
        self.runs += [
            Run(
                at_us=begun_us,
                window_ms=monotonic_ms() - begun_ms,
                publisher=each.publisher,
                destination=each.subscriber,
                qos=self.scenario.qos,
                strategy=Strategy.MESH.value,
                arrivals=each.arrivals,
            )
            for each in found
        ]
        return [(str(each.subscriber), each) for each in found]

    async def _calm(self, *, later_than: Announced | None = None) -> Announced:
        """Announcement counts outside any flood, after at least one more than ``later_than``.

        Waits until the cores of the grid's first seconds are forgotten: that costs messages which
        belong to no announcement of this time.
        """
        await asyncio.sleep(max(0.0, self._forgotten_at_s - time.monotonic()))
        try:
            async with asyncio.timeout(ANNOUNCED_TIMEOUT_S):
                last: Announced | None = None
                while True:
                    now = announced(await self.running.statuses())
                    fresh = later_than is None or now.made > later_than.made
                    if now.heard and fresh and now == last:
                        return now
                    last = now
                    await asyncio.sleep(CALM_S)
        except TimeoutError as error:
            raise LinkError(
                f"no core announcement reached every agent within {ANNOUNCED_TIMEOUT_S:g} s"
            ) from error

    async def _all_centralised(self) -> list[Named]:
        cases = [(n, broker) for n in self.scenario.runs for broker in self.scenario.centralised]
        if not cases:
            return []
        what = f"{max(self.scenario.runs)} publications, one broker"
        sent = dict.fromkeys(cases, 0)

        def progress(case: tuple[int, BrokerId], count: int) -> None:
            sent[case] = count
            self._progress(what, max(sent.values()), max(self.scenario.runs))

        async with RelayProcess(self.running.folder) as relays, asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(self._centralised(case, relays, partial(progress, case)))
                for case in cases
            ]
        return [delivery for task in running for delivery in task.result()]

    async def _centralised(
        self, case: tuple[int, BrokerId], relays: RelayProcess, progress: Callable[[int], None]
    ) -> list[Named]:
        publications, place = case
        name = f"at-{place}-{publications}"
        publisher = self.scenario.publisher
        way = self.scenario.way(publisher, place)
        folder = self.running.folder
        async with BrokerProcess(folder / f"broker-{name}") as broker:
            port = await relays.add(name, broker.place, delay_ms=way[1])
            async with ClientProcess(folder, name) as clients:
                await clients.connect(
                    {FIRST_PUBLISHER: (broker.host, port)},
                    {"A": broker.place, "B": broker.place},
                    TOPIC,
                    qos=self.scenario.qos,
                )
                seed = SEED + self.scenario.runs.index(publications)
                traffic = publications_of(self.scenario, publications, seed)
                arrivals = await clients.run(traffic, progress=progress)
                progress(publications)
        return [(each, Delivery(publisher, place, *way, got)) for each, got in arrivals.items()]
