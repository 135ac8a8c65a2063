"""One chaos run: start, warm up, hurt and heal again and again, come to rest, and judge.

After each episode the run waits until nothing is owed of what was acknowledged before the healing
and something sent after it has come everywhere: that span is the *recovery*. An episode that does
not recover within the deadline is a violation, and the next one begins all the same.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from federator.errors import LinkError
from federator.protocol.parameters import Strategy
from federator.protocol.types import BrokerId
from lab.chaos.layout import Layout, draw_layout, gathered
from lab.chaos.ledger import CALM, UNPROMISED_AT_QOS_0, Counts, Ledger, Violation
from lab.chaos.schedule import KINDS, MIXED, Episode, episodes
from lab.chaos.stage import Injury, SmallDisk, Stage, draw_persistent
from lab.chaos.traffic import Traffic
from lab.chaos.vitals import SAMPLE_S, Vital, Vitals
from lab.frame.settings import setting
from lab.grid.running import RunningGrid
from lab.grid.topology import Grid

ALONE: Final = Grid(1, 1)
"""The one broker of a run without agents."""

WARM_UP_TIMEOUT_S: Final = 60.0
SETTLE_S: Final = 3.0
"""Before the first fault: what an agent learnt in its last second is not on its disk yet."""

POLL_S: Final = 0.1
IN_FLIGHT_S: Final = 0.5
"""Before a fault: what is under way when it strikes is counted under it."""

FELT_TIMEOUT_S: Final = 5.0
"""A short fault lasts so much longer, at most, until it is felt: a quiet link says little."""

BREATH_S: Final = 1.0
"""After a recovery: copies that come late still count under the fault."""

REST_TIMEOUT_S: Final = 60.0
LINGER_S: Final = 2.0
"""At the end: time for copies to show up."""


CLASSES: Final = (*KINDS, MIXED)
QOS: Final = {"0": (0,), "1": (1,), "2": (2,), "mixed": (1, 2)}


def _classes(text: str) -> tuple[str, ...]:
    names = CLASSES if text == "all" else tuple(text.split(","))
    if not {*names} <= {*CLASSES}:
        raise ValueError("see --list")
    return names


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does.

    ``qos``: of the publications on each topic, in turn. A fault lasts for ``hold_s``, or for one of
    its class's spans.
    """

    minutes: float = setting(3.0, "", 0.1, 1_440)
    seed: int = setting(1, "", 0)
    rows: int = setting(3, "", 1, 20)
    columns: int = setting(3, "", 1, 20)
    redundancy: int = setting(2, "", 1, 8)
    strategy: str = setting(Strategy.MESH.value, among=[each.value for each in Strategy])
    link_delay_ms: float = setting(5.0, "", 0, 10_000)
    rate: float = setting(500.0, "msg/s in all.", 1, 10_000)
    qos: tuple[int, ...] = setting(
        "1",
        "Mixed: publications on each topic take turns between 1 and 2, for subscribers of each.",
        among=[*QOS],
        parse=QOS.__getitem__,
    )
    payload_bytes: int = setting(64, "", 20, 200_000)
    broker_queue: int = setting(
        5_000,
        "max_queued_messages of the brokers; must hold what comes while an agent is away.",
        least=100,
        most=1_000_000,
    )
    sys_interval_s: int = setting(
        10, "Of the brokers: how often they count their subscriptions.", 1, 3_600
    )
    recovery_timeout_s: float = setting(30.0, "After healing; longer is a violation.", 1, 3_600)
    keep_s: int | None = setting(None, "The agents' custody.keep_s.", 1, 604_800)
    rounds: int | None = setting(None, "Of all classes, instead of --minutes.", 1)
    hold_s: float | None = setting(None, "How long every fault lasts.", 0, 86_400)
    classes: tuple[str, ...] = setting(
        "all", "Which.", option="--faults", parse=_classes, form="CLASS[,CLASS]"
    )
    direct: bool = setting(default=False, about="Frames go straight from agent to agent.")
    signed: bool = setting(
        default=False, about="Agents have keys, and strangers are among the faults."
    )
    alone: bool = setting(
        default=False,
        about="All clients are at one broker without an agent: what Mosquitto does by itself.",
    )
    fail_fast: bool = setting(default=False, about="End at the first violation.")

    def __post_init__(self) -> None:
        if self.rows * self.columns < 2:
            raise ValueError("--rows x --columns: at least 2 brokers wanted")

    @property
    def grid(self) -> Grid:
        return Grid(self.rows, self.columns)

    @property
    def owes(self) -> bool:
        return min(self.qos) > 0


@dataclass(frozen=True, slots=True)
class Happened:
    """An episode as it went."""

    phase: str
    what: str
    began_s: float  # since the start, as is ``healed_s``
    healed_s: float
    recovery_s: float | None  # from the healing; ``None`` when it never recovered
    felt: tuple[tuple[str, bool], ...]  # each injury's class, and whether it left its trace


@dataclass(slots=True)
class Outcome:
    """What came of a run."""

    plan: Plan
    layout: Layout
    elapsed_s: float = 0.0
    counts: dict[str, Counts] = field(default_factory=dict)
    happened: list[Happened] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    vitals: list[Vital] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def held(self) -> bool:
        broken = any(each.broken(min(self.plan.qos)) for each in self.counts.values())
        sick = any(vital.faults for vital in self.vitals)
        return not (broken or self.violations or sick or self.never_felt)

    @property
    def never_felt(self) -> list[str]:
        """Classes of faults that were inflicted and never left a trace: they proved nothing."""
        felt: dict[str, bool] = {}
        for happened in self.happened:
            for kind, was_felt in happened.felt:
                felt[kind] = felt.get(kind, False) or was_felt
        return sorted(kind for kind, was_felt in felt.items() if not was_felt)


class ChaosRun:
    """Carries out a ``Plan`` in ``folder``.

    Args:
        small_disks: Whether file systems may be mounted.
        layout: The clients; drawn from the seed unless given.
        progress: Told what goes on, with the seconds gone by.
    """

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        *,
        small_disks: bool,
        layout: Layout | None = None,
        progress: Callable[[str, float], None] = lambda what, at_s: None,
    ) -> None:
        self.plan = plan
        self.folder = folder
        self._progress = progress
        rng = random.Random(plan.seed)
        drawn = layout or draw_layout(plan.grid, rng, plan.qos)
        self._layout = gathered(drawn, ALONE.ids[0]) if plan.alone else drawn
        self._persistent = draw_persistent(plan.grid.ids, rng)
        self._rng = rng
        with_disks = small_disks and "disk-full" in plan.classes and not plan.alone
        self._disks = self._choose_disks() if with_disks else {}
        self.outcome = Outcome(plan, self._layout)
        self._vitals: Vitals | None = None
        self._own_fault: BaseException | None = None

    def _choose_disks(self) -> dict[BrokerId, SmallDisk]:
        layout = self._layout
        chosen = dict.fromkeys([layout.origins[0], layout.destinations[-1]])
        return {i: SmallDisk(self.folder / f"agent-{i}" / "state") for i in chosen}

    async def run(self) -> Outcome:
        """Carry the whole run out. What goes wrong is in the outcome.

        Raises ``LinkError``: the grid did not start, or its mesh never stood.
        """
        asyncio.get_running_loop().set_exception_handler(self._on_own_fault)
        async with self._grid() as grid:
            ledger = Ledger(self._layout, mixed=len(self.plan.qos) > 1)
            disks, persistent = self._disks, self._persistent
            started_s = time.monotonic() - 1.0  # nothing happens at 0
            stage = Stage(
                grid, self._layout, ledger, persistent, disks, set(), started_s, self.plan.hold_s
            )
            traffic = Traffic(
                self._layout,
                ledger,
                grid.brokers,
                run=self._rng.getrandbits(60),
                rate=self.plan.rate,
                qos=self.plan.qos,
                payload_bytes=self.plan.payload_bytes,
                clock=stage.now_s,
            )
            stage.traffic = traffic
            async with _running(client.run() for client in traffic.clients):
                async with _running([traffic.publish()]):
                    await self._warm_up(stage)
                    self._vitals = Vitals(grid.agents)
                    async with _running([self._watch(stage)]):
                        await self._hurt(stage)
                await self._rest(stage, traffic)
            self._judge(stage)
        return self.outcome

    @contextlib.asynccontextmanager
    async def _grid(self) -> AsyncIterator[RunningGrid]:
        with contextlib.ExitStack() as mounts:
            for disk in self._disks.values():
                disk.mount()
                mounts.callback(self._unmount, disk)
            plan = self.plan
            lines = (
                f"max_queued_messages {plan.broker_queue}",
                f"sys_interval {plan.sys_interval_s}",
            )
            grid = RunningGrid(
                ALONE if plan.alone else plan.grid,
                self.folder,
                link_delay_ms=plan.link_delay_ms,
                redundancy=plan.redundancy,
                broker_options=lines,
                persistent=self._persistent,
                signed=plan.signed,
                direct=plan.direct,
                with_agents=not plan.alone,
                agent_options={
                    "routing": {"strategy": plan.strategy},
                    "custody": {} if plan.keep_s is None else {"keep_s": plan.keep_s},
                },
                progress=lambda what: self._progress(f"starting {what}", 0.0),
            )
            async with grid:
                yield grid

    def _unmount(self, disk: SmallDisk) -> None:
        disk.unmount(keep=not (self.outcome.counts and self.outcome.held))

    def _on_own_fault(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback of ours failed: what was counted since is worth nothing."""
        self._own_fault = self._own_fault or context.get("exception")
        loop.default_exception_handler(context)

    async def _warm_up(self, stage: Stage) -> None:
        deadline_s = stage.now_s() + WARM_UP_TIMEOUT_S
        while waiting := stage.ledger.stalled(0.0):
            self._progress(f"warming up, {len(waiting)} to go", stage.now_s())
            if stage.now_s() > deadline_s:
                raise LinkError(f"after {WARM_UP_TIMEOUT_S:g} s nothing came to {waiting[:3]}")
            await asyncio.sleep(POLL_S)
        await asyncio.sleep(SETTLE_S)
        stage.ledger.begin()

    async def _watch(self, stage: Stage) -> None:
        """Sample the agents; one that ends by itself is a violation, and is started again."""
        assert self._vitals is not None
        while True:
            if self._own_fault is not None:
                raise self._own_fault
            self._vitals.sample(stage.now_s())
            for here, agent in stage.grid.agents.items():
                if not agent.running and here not in stage.down:
                    self._accuse(stage, "agent ended", f"agent {here}", agent.log_tail(3))
                    await agent.start()
            await asyncio.sleep(SAMPLE_S)

    async def _hurt(self, stage: Stage) -> None:
        plan = self.plan
        end_s = stage.now_s() + 60 * plan.minutes
        for name in plan.classes:
            if name != MIXED and (why := KINDS[name].lacks(stage)):
                self.outcome.skipped[name] = why
        classes = [name for name in plan.classes if name not in self.outcome.skipped]
        if not classes:
            return
        for episode in episodes(classes, stage, self._rng):
            over = stage.now_s() >= end_s if plan.rounds is None else episode.round >= plan.rounds
            if over or (plan.fail_fast and self._reports(stage)):
                return
            await self._episode(episode, stage)

    def _reports(self, stage: Stage) -> list[Violation]:
        found = stage.ledger.violations
        if not self.plan.owes:
            found = [each for each in found if each.kind not in UNPROMISED_AT_QOS_0]
        return [*self.outcome.violations, *found]

    async def _episode(self, episode: Episode, stage: Stage) -> None:
        began_s = stage.now_s()
        stage.ledger.enter(episode.phase, began_s)
        self._tell(str(episode), stage)
        await asyncio.sleep(IN_FLIGHT_S)
        async with asyncio.TaskGroup() as tasks:
            felt = [
                (injury.kind, tasks.create_task(_inflict(wait_s, injury), name=str(injury)))
                for wait_s, injury in episode.injuries
            ]
        healed_s = stage.now_s()
        recovery_s = await self._recover(str(episode), stage, healed_s)
        happened = Happened(
            episode.phase,
            str(episode),
            began_s,
            healed_s,
            recovery_s,
            tuple((kind, task.result()) for kind, task in felt),
        )
        self.outcome.happened.append(happened)
        await asyncio.sleep(BREATH_S)
        stage.ledger.enter(CALM, stage.now_s())

    async def _recover(self, what: str, stage: Stage, healed_s: float) -> float | None:
        while True:
            now_s = stage.now_s()
            stalled, behind = stage.ledger.stalled(healed_s), self._behind(stage, healed_s)
            if not stalled and not behind:
                return now_s - healed_s
            if now_s > healed_s + self.plan.recovery_timeout_s:
                detail = f"{behind} owed, nothing new for {stalled[:3]} (of {len(stalled)})"
                self._accuse(stage, "not recovered", what, detail)
                stage.ledger.give_up()
                return None
            self._tell(f"{what}: {behind} owed", stage)
            await asyncio.sleep(POLL_S)

    def _behind(self, stage: Stage, before_s: float) -> int:
        return stage.ledger.behind(before_s) if self.plan.owes else 0

    async def _rest(self, stage: Stage, traffic: Traffic) -> None:
        deadline_s = stage.now_s() + REST_TIMEOUT_S
        while (behind := self._behind(stage, stage.now_s())) or traffic.unanswered:
            self._tell(f"coming to rest, {behind} owed", stage)
            if stage.now_s() > deadline_s:
                break
            await asyncio.sleep(POLL_S)
        await asyncio.sleep(LINGER_S)
        self.outcome.elapsed_s = stage.now_s()

    def _judge(self, stage: Stage) -> None:
        outcome = self.outcome
        outcome.counts = stage.ledger.counts()
        outcome.violations = sorted(self._reports(stage), key=lambda v: v.at_s)
        if self._vitals is not None:
            outcome.vitals = self._vitals.judge(outcome.elapsed_s, len(outcome.happened))

    def _accuse(self, stage: Stage, kind: str, where: str, detail: str) -> None:
        phase = stage.ledger.phase_at(stage.now_s())
        violation = Violation(kind, phase, stage.now_s(), where, detail=detail)
        self.outcome.violations.append(violation)

    def _tell(self, what: str, stage: Stage) -> None:
        self._progress(what, stage.now_s())


async def _inflict(wait_s: float, injury: Injury) -> bool:
    await asyncio.sleep(wait_s)
    try:
        await injury.inflict()
        await asyncio.sleep(injury.hold_s)
        deadline_s = time.monotonic() + FELT_TIMEOUT_S
        while True:
            felt = await injury.felt()
            if felt or time.monotonic() > deadline_s:
                return felt
            await asyncio.sleep(POLL_S)
    finally:
        await injury.heal()


@contextlib.asynccontextmanager
async def _running(coroutines: Iterable[Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Run ``coroutines`` beside the body; a failure of theirs ends it, its end cancels them."""
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(each) for each in coroutines]
        try:
            yield
        finally:
            for task in running:
                task.cancel()
