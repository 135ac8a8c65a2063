"""Runs a scenario on real processes and gathers the figures of the paper's Tables 2 and 3.

The federated runs come first, one after the other, with nothing else under way. The centralised
runs follow together: each has its own broker, relay and clients, a dozen messages a second.

A centralised run has one broker with both subscribers beside it; the publisher reaches it over one
relay whose delay is the sum of the links on the shortest path. The paper counts so too: its
subscriber A sees the same delay as the federation gives over that path.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from federator.errors import LinkError
from federator.grid.broker_process import BrokerProcess
from federator.grid.clients import ClientProcess, Place, Traffic
from federator.grid.observed import (
    Announced,
    announced,
    control_sent,
    mesh_fault,
    next_hops,
    observed_mesh,
)
from federator.grid.relay_process import RelayProcess
from federator.grid.running import RunningGrid
from federator.grid.scenario import Scenario
from federator.grid.tally import Arrivals
from federator.grid.topology import Mesh, announcement_bound, announcement_flood, expected_mesh
from federator.protocol.types import BrokerId

TOPIC: Final = "grid/measurement"
SEED: Final = 2021
CALM_S: Final = 0.3
"""Counters that stay the same for so long are not in the middle of a flood."""

DEPOSED_S: Final = 16.0
"""After it, a core that was deposed while the mesh formed is forgotten: 3 intervals of 5 s."""

ANNOUNCED_TIMEOUT_S: Final = 30.0

Progress = Callable[[str, int, int], None]
"""Called with what is under way, how much of it is done, and how much there is."""


def silent(what: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One row of a table: what one subscriber got in one run.

    Attributes:
        publications: Of the run.
        place: Broker the subscriber is connected to.
        subscriber: ``A`` and ``B`` beside a single broker, else the broker's id.
        hops: Links between publisher and subscriber, on a shortest path.
        floor_ms: The sum of their delays: what physics alone costs.
    """

    publications: int
    place: BrokerId
    subscriber: str
    hops: int
    floor_ms: float
    arrivals: Arrivals

    @property
    def added_ms(self) -> float:
        """Mean delay beyond the floor."""
        return self.arrivals.delay_ms_mean - self.floor_ms

    @property
    def added_per_hop_ms(self) -> float:
        """Mean delay beyond the floor, per link; all of it when there is no link."""
        return self.added_ms / max(self.hops, 1)


@dataclass(frozen=True, slots=True)
class Announcements:
    """What announcing cost since the first federated run.

    Attributes:
        count: Core announcements made.
        messages: Publications that carried them.
        flood: Publications of one announcement when all links delay alike.
        bound: Theorem 1: twice the number of links.
    """

    count: int
    messages: int
    flood: int
    bound: int

    @property
    def per_announcement(self) -> float:
        """Publications per core announcement."""
        return self.messages / self.count


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything one scenario gave.

    Attributes:
        mesh: As the agents describe it.
        relayed_to: Where the publisher's broker sends.
        control_sent: Control messages of all agents since their start, by kind.
        faults: What is not as it must be, a line each; empty when all is well.
    """

    scenario: Scenario
    mesh: Mesh
    relayed_to: tuple[BrokerId, ...]
    federated: list[Delivery]
    centralised: list[Delivery]
    announcements: Announcements
    control_sent: dict[str, int]
    faults: list[str] = field(default_factory=list)


class Measurement:
    """A scenario's clients on a running grid.

    Args:
        scenario: What to do.
        running: A started grid of the scenario's shape.
        progress: Told how far a run is.
    """

    def __init__(
        self, scenario: Scenario, running: RunningGrid, *, progress: Progress = silent
    ) -> None:
        self.scenario = scenario
        self.running = running
        self.expected = expected_mesh(
            scenario.grid, scenario.subscribers, redundancy=scenario.redundancy
        )
        self._progress = progress
        self._forgotten_at_s = 0.0
        self._clients = ClientProcess(running.folder, "federated")

    async def subscribe(self) -> None:
        """Connect the clients and wait until the mesh stands.

        Raises:
            LinkError: It does not become the one that the graph gives.
        """
        await self._clients.start(
            publisher=self._place(self.scenario.publisher),
            subscribers={str(i): self._place(i) for i in self.scenario.subscribers},
            topic=TOPIC,
            filter=TOPIC,
            qos=self.scenario.qos,
        )
        await self.running.until(lambda statuses: mesh_fault(statuses, TOPIC, self.expected))
        self._forgotten_at_s = time.monotonic() + DEPOSED_S

    async def run(self) -> Outcome:
        """All federated runs, then the centralised ones."""
        federated: list[Delivery] = []
        before: Announced | None = None
        for number, publications in enumerate(self.scenario.runs):
            federated += await self._federated(publications, seed=SEED + number)
            before = before or await self._calm()
        assert before is not None, "a scenario has a run"
        after = await self._calm(later_than=before)
        statuses = await self.running.statuses()
        faults = _delivery_faults(federated)
        if fault := mesh_fault(statuses, TOPIC, self.expected):
            faults.append(f"after the runs, {fault}")
        mesh = observed_mesh(statuses, TOPIC)
        faults += _differences_from_source(self.scenario, mesh)
        centralised = await self._all_centralised()
        faults += _delivery_faults(centralised)
        announcements = Announcements(
            count=after.made - before.made,
            messages=after.messages - before.messages,
            flood=announcement_flood(self.scenario.grid),
            bound=announcement_bound(self.scenario.grid),
        )
        if announcements.messages > announcements.bound * announcements.count:
            faults.append(
                f"{announcements.per_announcement:.1f} messages per announcement: more than "
                f"{announcements.bound}"
            )
        return Outcome(
            scenario=self.scenario,
            mesh=mesh,
            relayed_to=next_hops(statuses, TOPIC, self.scenario.publisher),
            federated=federated,
            centralised=centralised,
            announcements=announcements,
            control_sent=_total_control(statuses),
            faults=faults,
        )

    async def stop(self) -> None:
        """Disconnect the clients."""
        await self._clients.stop()

    def _place(self, here: BrokerId) -> Place:
        broker = self.running.brokers[here]
        return Place(broker.host, broker.port)

    def _traffic(self, publications: int, seed: int) -> Traffic:
        scenario = self.scenario
        return Traffic(publications, scenario.gap_ms, scenario.payload_bytes, seed)

    async def _federated(self, publications: int, *, seed: int) -> list[Delivery]:
        what = f"{publications} publications, federated"
        arrivals = await self._clients.run(
            self._traffic(publications, seed),
            progress=lambda sent: self._progress(what, sent, publications),
        )
        self._progress(what, publications, publications)
        hops = self.scenario.grid.hops_from(self.scenario.publisher)
        return [
            Delivery(
                publications=publications,
                place=here,
                subscriber=str(here),
                hops=hops[here],
                floor_ms=hops[here] * self.scenario.link_delay_ms,
                arrivals=arrivals[str(here)],
            )
            for here in self.scenario.subscribers
        ]

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

    async def _all_centralised(self) -> list[Delivery]:
        cases = [(n, broker) for n in self.scenario.runs for broker in self.scenario.centralised]
        if not cases:
            return []
        what = f"{max(self.scenario.runs)} publications, one broker"
        relays = RelayProcess(self.running.folder)
        await relays.start()
        sent = dict.fromkeys(cases, 0)

        def progress(case: tuple[int, BrokerId], count: int) -> None:
            sent[case] = count
            self._progress(what, max(sent.values()), max(self.scenario.runs))

        try:
            async with asyncio.TaskGroup() as tasks:
                running = [
                    tasks.create_task(self._centralised(case, relays, partial(progress, case)))
                    for case in cases
                ]
        finally:
            await relays.stop()
        return [delivery for task in running for delivery in task.result()]

    async def _centralised(
        self, case: tuple[int, BrokerId], relays: RelayProcess, progress: Callable[[int], None]
    ) -> list[Delivery]:
        publications, place = case
        name = f"at-{place}-{publications}"
        hops = self.scenario.grid.hops_from(self.scenario.publisher)[place]
        floor_ms = hops * self.scenario.link_delay_ms
        clients = ClientProcess(self.running.folder, name)
        async with BrokerProcess(self.running.folder / f"broker-{name}") as broker:
            port = await relays.add(name, host=broker.host, port=broker.port, delay_ms=floor_ms)
            beside = Place(broker.host, broker.port)
            try:
                await clients.start(
                    publisher=Place("127.0.0.1", port),
                    subscribers={"A": beside, "B": beside},
                    topic=TOPIC,
                    filter=TOPIC,
                    qos=self.scenario.qos,
                )
                seed = SEED + self.scenario.runs.index(publications)
                arrivals = await clients.run(self._traffic(publications, seed), progress=progress)
                progress(publications)
            finally:
                await clients.stop()
        return [
            Delivery(
                publications=publications,
                place=place,
                subscriber=subscriber,
                hops=hops,
                floor_ms=floor_ms,
                arrivals=each,
            )
            for subscriber, each in arrivals.items()
        ]


def _delivery_faults(deliveries: list[Delivery]) -> list[str]:
    return [
        f"{d.publications} publications to {d.subscriber} at broker {d.place}: "
        f"{d.arrivals.lost} lost, {d.arrivals.duplicates} twice, "
        f"{d.arrivals.disordered} out of order, {d.arrivals.foreign} foreign"
        for d in deliveries
        if not d.arrivals.exact
    ]


def _differences_from_source(scenario: Scenario, mesh: Mesh) -> list[str]:
    return [
        f"broker {here} has parents {mesh.parents.get(here, ())}; the source gives {parents}"
        for here, parents in scenario.parents.items()
        if mesh.parents.get(here) != parents
    ]


def _total_control(statuses: dict[BrokerId, dict[str, Any]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for status in statuses.values():
        for kind, count in control_sent(status).items():
            total[kind] = total.get(kind, 0) + count
    return total
