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
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from federator.runtime.mqtt.link import Endpoint
from lab.frame.experiment import Result, Tell, experiment
from lab.frame.settings import setting
from lab.grid.processes.gateway import GatewayConfig, GatewayProcess
from lab.grid.reporting import check_analytics, gather_spools, make_report
from lab.grid.running import FEDERATION, RunningGrid
from lab.grid.streams import linked, running
from lab.grid.topology import Grid
from lab.mixed.dashboard import Dashboard
from lab.mixed.traffic import Publishing, Tally, Visit, topics_of

METRICS: Final = {"enabled": True, "sample": 10, "segment_age_ms": 2_000}
STAYS_S: Final = ((5.0, 40.0), (60.0, 240.0))
"""Short and long. Reports judge what was wanted for half a minute and more (docs/analytics.md)."""

VISITORS: Final = 6
PAUSE_S: Final = (1.0, 6.0)
AGENTS_PAUSE_S: Final = (30.0, 90.0)
CUT_S: Final = 8.0
LAST_RECORDS_S: Final = 8.0
"""Until what is settled last is in a finished segment."""

GLANCE_S: Final = 5.0
DASHBOARD_LAG_S: Final = 60.0
"""Until what is recorded is on the dashboard: several times what its documents say."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How long, how fast, and whether something is lost."""

    minutes: float = setting(10.0, "", 0.5, 1_440)
    rate: float = setting(50.0, "msg/s in all, QoS 1.", 1, 2_000)
    seed: int = setting(1, "Of who comes and goes, and when.", 0)
    report_every_min: float = setting(5.0, "Minutes.", 0.2, 1_440, option="--report-every")
    plant: bool = setting(default=False, about="Really lose something: both must say so.")


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
        loss = told["loss"]
        offered = sum(row["offered"] for row in loss["by_qos"])
        return cls(
            at_s, told["verdict"], offered, loss["missing"], loss["under_way"], clients_missing
        )

    @property
    def cries_wolf(self) -> bool:
        return bool(self.reported_missing) and not self.clients_missing


@dataclass(eq=False)
class Outcome(Result):
    """What clients, reports and the dashboard tell."""

    plan: Settings
    tally: Tally = field(default_factory=Tally)
    published: int = 0
    agent_restarts: int = 0
    gateway_visits: int = 0
    reports: list[Looked] = field(default_factory=list)
    glances: list[Looked] = field(default_factory=list)  # at the dashboard

    @property
    def held(self) -> bool:
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

    def lines(self) -> Iterator[str]:
        tally = self.tally
        yield (
            f"{self.published:,} publications, {tally.visits} visits of subscribers, "
            f"{self.gateway_visits} of a gateway, {self.agent_restarts} restarts of agents"
        )
        yield f"clients: {tally.owed:,} owed, {tally.missing} missing, {tally.again} twice"
        yield from (f"  {example}" for example in tally.examples[:5])
        for what, looked in (("reports", self.reports), ("looks at the dashboard", self.glances)):
            wolf, last = sum(each.cries_wolf for each in looked), looked[-1]
            yield (
                f"{what}: {len(looked)}, {wolf} said lost where clients had lost nothing; the last "
                f"says {last.reported_missing} of {last.offered:,} missing: {last.verdict}"
            )


async def run(settings: Settings, folder: Path, tell: Tell) -> Outcome:
    """Hold reports and the live dashboard against clients' counts while all come and go.

    All are subscribers, agents and a gateway.

    Exits 0 when they tell one story: nothing was lost and no report says otherwise; with --plant,
    when clients lost something and both say so in the end. 1 otherwise.
    """
    check_analytics()
    return await _MixedRun(settings, folder, tell).run()


class _MixedRun:
    """One run in ``folder``, which exists."""

    def __init__(self, plan: Settings, folder: Path, tell: Tell) -> None:
        grid = Grid(1, 2) if plan.plant else Grid(2, 2)
        options: dict[str, dict[str, Any]] = {"metrics": METRICS}
        if plan.plant:
            options["custody"] = {"keep_s": 1}
        self.outcome = Outcome(plan)
        self._plan = plan
        self._folder = folder
        self._say = tell
        self._random = random.Random(plan.seed)
        self._grid = RunningGrid(
            grid,
            folder,
            link_delay_ms=5.0,
            agent_options=options,
            broker_options=("sys_interval 2",),
        )
        self._publishing = Publishing(self._grid, plan.rate)
        self._change = asyncio.Lock()  # who comes or goes does so alone, so what is owed is plain
        self._visits = 0

    async def run(self) -> Outcome:
        self._end_s = time.monotonic() + self._plan.minutes * 60
        async with self._grid as grid:
            urls = [broker.url for broker in grid.brokers.values()]
            async with Dashboard(self._folder / "dashboard", urls) as dashboard:
                async with running(self._publishing.run()):
                    await self._come_and_go(dashboard)
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
        while time.monotonic() < self._end_s:
            yield
            await self._rest(pause_s)

    async def _rest(self, between_s: tuple[float, float]) -> None:
        """Wait for a while, and not beyond the end."""
        rest_s = self._random.uniform(*between_s)
        await asyncio.sleep(max(0.0, min(rest_s, self._end_s - time.monotonic())))

    async def _visit_brokers(self) -> None:
        async for _ in self._until_the_end():
            await self._visit(self._grid.endpoint(self._random.choice(list(self._grid.brokers))))

    async def _visit_gateway(self) -> None:
        urls = {id: broker.url for id, broker in self._grid.brokers.items()}
        config = GatewayConfig("mixed", urls, federation=FEDERATION)
        async for _ in self._until_the_end():
            gateway = GatewayProcess(self._folder / "gateway", config)
            async with self._change:
                await gateway.start()
            try:
                await self._visit(Endpoint(gateway.host, gateway.port))
            finally:
                await gateway.stop()
            self.outcome.gateway_visits += 1

    async def _visit(self, at: Endpoint) -> None:
        visit = self._visitor(at)
        async with running(visit.link.run()):
            async with self._change:
                await visit.subscribed.wait()
                await visit.begin()
            await self._stay(visit)

    def _visitor(self, at: Endpoint) -> Visit:
        self._visits += 1
        origin = self._random.choice(list(self._grid.brokers))
        wanted = ["mixed/#", f"mixed/{origin}/+", self._random.choice(topics_of(origin))]
        filter_ = self._random.choice(wanted)
        return Visit(at, f"mixed-visitor-{self._visits}", filter_, self._publishing)

    async def _stay(self, visit: Visit) -> None:
        await self._rest(self._random.choice(STAYS_S))
        async with self._change:
            await visit.leave(self.outcome.tally)

    async def _restart_agents(self) -> None:
        """One after the other, and somebody subscribes while it is away."""
        async for _ in self._until_the_end(AGENTS_PAUSE_S):
            id = self._random.choice(list(self._grid.agents))
            agent, visit = self._grid.agents[id], self._visitor(self._grid.endpoint(id))
            async with contextlib.AsyncExitStack() as stack:
                async with self._change:
                    await agent.stop()
                    await stack.enter_async_context(linked(visit))
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
        return self._plan.minutes * 60 - (self._end_s - time.monotonic())

    def _tell(self, what: str, looked: Looked) -> None:
        tally = self.outcome.tally
        self._say(
            f"{looked.at_s:7.0f} s  {what}: {looked.reported_missing} of {looked.offered} missing,"
            f" {looked.under_way} under way, {looked.verdict}; clients: {looked.clients_missing}"
            f" of {tally.owed} missing in {tally.visits} visits"
        )


command = experiment("mixed", Settings, run)
