"""Mixed traffic for as long as you like, watched as it runs: do dashboard and report cry wolf?

Subscribers come and go at brokers and at a gateway, agents are stopped and started, each in its
turn, while all brokers' clients publish; some subscribe while their broker's agent is away, which
then asks for more than it knows to be wanted. A live dashboard is looked at every few seconds, and
every few minutes analytics makes a report of what the agents recorded so far, running as they are.
As long as the subscribers' own counts say that nothing was lost neither may say otherwise. With
``plant`` something is really lost (agents keep what they forward for a second, and a link is cut
for longer), and both must say so in the end.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from federator.protocol.types import BrokerId
from lab.grid.processes.gateway import GatewayConfig, GatewayProcess
from lab.grid.reporting import gather_spools, make_report
from lab.grid.running import FEDERATION, RunningGrid
from lab.grid.topology import Grid
from lab.mixed.dashboard import Dashboard
from lab.mixed.traffic import Place, Publishing, Tally, Visit, topics_of

METRICS: Final = {"enabled": True, "sample": 10, "segment_age_ms": 2_000}
STAYS_S: Final = ((5.0, 40.0), (60.0, 240.0))
"""Short and long. Reports judge what was wanted for half a minute and more (docs/analytics.md)."""

VISITORS: Final = 6
PAUSE_S: Final = (1.0, 6.0)
AGENTS_PAUSE_S: Final = (30.0, 90.0)
CUT_S: Final = 8.0
LAST_RECORDS_S: Final = 8.0
"""Until what is settled last is in a finished segment."""

LEAVE_S: Final = 20.0
GLANCE_S: Final = 5.0
DASHBOARD_LAG_S: Final = 60.0
"""Until what is recorded is on the dashboard: several times what its documents say."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done."""

    minutes: float
    rate: float
    seed: int
    report_every_min: float
    plant: bool


@dataclass(frozen=True, slots=True)
class Looked:
    """One report, or one look at the dashboard, beside the clients' counts at that time."""

    at_s: float
    verdict: str
    offered: int  # publications that it compares, per destination and filter
    reported_missing: int
    under_way: int
    clients_missing: int

    @classmethod
    def at(cls, at_s: float, told: Mapping[str, Any], clients_missing: int) -> "Looked":
        """What is told by a report's summary, or by what the dashboard polls."""
        loss = told["loss"]
        offered = sum(row["offered"] for row in loss["by_qos"])
        return cls(
            at_s, told["verdict"], offered, loss["missing"], loss["under_way"], clients_missing
        )

    @property
    def cries_wolf(self) -> bool:
        """Whether it says that something was lost, and nothing was."""
        return bool(self.reported_missing) and not self.clients_missing


@dataclass(eq=False)
class Outcome:
    """What came of it."""

    plan: Plan
    tally: Tally = field(default_factory=Tally)
    published: int = 0
    agent_restarts: int = 0
    gateway_visits: int = 0
    reports: list[Looked] = field(default_factory=list)
    glances: list[Looked] = field(default_factory=list)  # at the dashboard

    @property
    def held(self) -> bool:
        """Whether clients, reports and dashboard tell one story."""
        return all(self._is_held(looked) for looked in (self.reports, self.glances))

    def _is_held(self, looked: Sequence[Looked]) -> bool:
        last = looked[-1]
        if self.plan.plant:
            return bool(last.clients_missing and last.reported_missing)
        return (
            bool(last.offered)
            and not self.tally.missing
            and not any(each.reported_missing for each in looked)
        )


class MixedRun:
    """One run in ``folder``, which exists."""

    def __init__(self, plan: Plan, folder: Path, progress: Callable[[str], None]) -> None:
        grid = Grid(1, 2) if plan.plant else Grid(2, 2)
        options: dict[str, dict[str, Any]] = {"metrics": METRICS}
        if plan.plant:
            options["custody"] = {"keep_s": 1}
        self.outcome = Outcome(plan)
        self._plan = plan
        self._folder = folder
        self._progress = progress
        self._random = random.Random(plan.seed)
        self._grid = RunningGrid(
            grid,
            folder,
            link_delay_ms=5.0,
            agent_options=options,
            broker_options=("sys_interval 2",),
        )
        self._change = asyncio.Lock()  # who comes or goes does so alone, so what is owed is plain
        self._visits = 0

    async def run(self) -> Outcome:
        """Do all of it. Raises ``LinkError``: something did not start."""
        self._end_s = time.monotonic() + self._plan.minutes * 60
        async with self._grid as grid:
            places: dict[BrokerId, Place] = {id: each.place for id, each in grid.brokers.items()}
            urls = [broker.url for broker in grid.brokers.values()]
            self._publishing = Publishing(places, self._plan.rate)
            publishing = asyncio.create_task(self._publishing.run(), name="publishing")
            async with Dashboard(self._folder / "dashboard", urls) as dashboard:
                try:
                    await self._come_and_go(dashboard)
                finally:
                    publishing.cancel()
                    # A client whose DISCONNECT is not followed by a close waits without end.
                    await asyncio.wait([publishing], timeout=LEAVE_S)
                await asyncio.sleep(LAST_RECORDS_S)
                await self._glance_at_the_end(dashboard)
        await self._make_report()
        self.outcome.published = self._publishing.counts.total()
        return self.outcome

    async def _come_and_go(self, dashboard: Dashboard) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(VISITORS):
                tasks.create_task(self._visit_brokers(), name="visits")
            if self._plan.plant:
                tasks.create_task(self._lose_something(), name="plant")
            else:
                tasks.create_task(self._visit_gateway(), name="gateway")
                tasks.create_task(self._restart_agents(), name="agents")
            tasks.create_task(self._report_now_and_then(), name="reports")
            tasks.create_task(self._glance_now_and_then(dashboard), name="dashboard")

    async def _until_the_end(self, pause_s: tuple[float, float] = PAUSE_S) -> AsyncIterator[None]:
        """Again and again, with pauses."""
        while time.monotonic() < self._end_s:
            yield
            await self._rest(pause_s)

    async def _rest(self, between_s: tuple[float, float]) -> None:
        """Wait for a while, and not beyond the end."""
        rest_s = self._random.uniform(*between_s)
        await asyncio.sleep(max(0.0, min(rest_s, self._end_s - time.monotonic())))

    async def _visit_brokers(self) -> None:
        async for _ in self._until_the_end():
            await self._visit(self._random.choice(list(self._grid.brokers.values())).place)

    async def _visit_gateway(self) -> None:
        urls = {id: broker.url for id, broker in self._grid.brokers.items()}
        config = GatewayConfig("mixed", urls, federation=FEDERATION)
        async for _ in self._until_the_end():
            gateway = GatewayProcess(self._folder / "gateway", config)
            async with self._change:
                await gateway.start()
            try:
                await self._visit((gateway.host, gateway.port))
            finally:
                await gateway.stop()
            self.outcome.gateway_visits += 1

    async def _visit(self, place: Place) -> None:
        visit = self._visitor(place)
        async with contextlib.AsyncExitStack() as stack:
            async with self._change:
                await visit.subscribe(stack)
                await visit.begin()
            await self._stay(visit)

    def _visitor(self, place: Place) -> Visit:
        self._visits += 1
        origin = self._random.choice(list(self._grid.brokers))
        wanted = ["mixed/#", f"mixed/{origin}/+", self._random.choice(topics_of(origin))]
        filter_ = self._random.choice(wanted)
        return Visit(f"mixed-visitor-{self._visits}", place, filter_, self._publishing)

    async def _stay(self, visit: Visit) -> None:
        await self._rest(self._random.choice(STAYS_S))
        async with self._change:
            await visit.leave(self.outcome.tally)

    async def _restart_agents(self) -> None:
        """One after the other, and somebody subscribes while it is away."""
        async for _ in self._until_the_end(AGENTS_PAUSE_S):
            id = self._random.choice(list(self._grid.agents))
            agent, visit = self._grid.agents[id], self._visitor(self._grid.brokers[id].place)
            async with contextlib.AsyncExitStack() as stack:
                async with self._change:
                    await agent.stop()
                    await visit.subscribe(stack)
                    await agent.start()
                    await self._grid.until(self._grid.links_up)
                    await visit.begin()
                await self._stay(visit)
            self.outcome.agent_restarts += 1

    async def _lose_something(self) -> None:
        """Cut the only link for longer than agents keep what they forward."""
        await asyncio.sleep(max(15.0, (self._end_s - time.monotonic()) / 2))
        await self._grid.order("cut", *self._grid.grid.links)
        await asyncio.sleep(CUT_S)
        await self._grid.order("heal", *self._grid.grid.links)

    async def _report_now_and_then(self) -> None:
        every_s = self._plan.report_every_min * 60
        while time.monotonic() + every_s < self._end_s:
            await asyncio.sleep(every_s)
            await self._make_report()

    async def _make_report(self) -> None:
        """Make a report of what there is, and hold it against the counts of clients."""
        number = len(self.outcome.reports)
        records = self._folder / f"records-{number}"
        records.mkdir()
        clients_missing = self.outcome.tally.missing
        states = [agent.state_dir for agent in self._grid.agents.values()]
        gather_spools(states, records)
        summary = await make_report(records, self._folder / f"report-{number}")
        looked = Looked.at(self._at_s, summary, clients_missing)
        self.outcome.reports.append(looked)
        self._tell("report", looked)

    async def _glance_now_and_then(self, dashboard: Dashboard) -> None:
        async for _ in self._until_the_end((GLANCE_S, GLANCE_S)):
            looked = await self._glance(dashboard)
            if looked.cries_wolf and not self._plan.plant:  # who stays counts at the end
                self._tell("dashboard", looked)

    async def _glance_at_the_end(self, dashboard: Dashboard) -> None:
        """Until it says what is looked for, or had time enough."""
        late_s = time.monotonic() + DASHBOARD_LAG_S
        while time.monotonic() < late_s:
            looked = await self._glance(dashboard)
            if looked.reported_missing if self._plan.plant else looked.offered:
                break
            await asyncio.sleep(GLANCE_S)
        self._tell("dashboard", looked)

    async def _glance(self, dashboard: Dashboard) -> Looked:
        clients_missing = self.outcome.tally.missing
        looked = Looked.at(self._at_s, await dashboard.look(), clients_missing)
        self.outcome.glances.append(looked)
        return looked

    @property
    def _at_s(self) -> float:
        """Since it began."""
        return self._plan.minutes * 60 - (self._end_s - time.monotonic())

    def _tell(self, what: str, looked: Looked) -> None:
        tally = self.outcome.tally
        self._progress(
            f"{looked.at_s:7.0f} s  {what}: {looked.reported_missing} of {looked.offered} missing,"
            f" {looked.under_way} under way, {looked.verdict}; clients: {looked.clients_missing}"
            f" of {tally.owed} missing in {tally.visits} visits"
        )
