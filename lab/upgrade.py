"""A line of brokers whose agents change from a former commit to this checkout, one by one.

Streams cross the line both ways meanwhile. After each change every agent is killed and started
again, so that each mixture of old and new agents also begins anew from what it left on disk.
"""

import asyncio
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from federator.errors import LinkError
from federator.protocol.types import BrokerId
from lab.frame.experiment import Result, Tell, experiment
from lab.frame.settings import setting
from lab.grid.clients import Arrivals
from lab.grid.processes import children
from lab.grid.processes.agent import AgentProcess
from lab.grid.processes.children import Process
from lab.grid.stage import DEEP, Stage, unlinked
from lab.grid.streams import flowing
from lab.grid.topology import Grid

LINE: Final = Grid(1, 3, first_id=1)
BROKERS: Final = LINE.ids
ENDS: Final = (BROKERS[0], BROKERS[-1])
CHECKOUT: Final = Path(__file__).resolve().parents[1]
PUBLICATIONS_MAX: Final = 1_000_000
CALM_S: Final = 2.0
"""Between two restarts, so that streams flow in each mixture."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Which commit, and how fast."""

    since: str = setting("HEAD~1", "The former commit.", form="COMMIT")
    rate_hz: float = setting(200.0, "msg/s each way, QoS 1.", 1, 2_000, option="--rate")


@dataclass(frozen=True, slots=True)
class Outcome(Result):
    """What arrived at each end, of all that was published at the other."""

    since: str
    restarts: int
    arrivals: dict[str, Arrivals]

    @property
    def held(self) -> bool:
        return all(arrivals.exact for arrivals in self.arrivals.values())

    def lines(self) -> Iterator[str]:
        yield f"{len(BROKERS)} agents changed from {self.since}, {self.restarts} restarts in all"
        for name, arrivals in self.arrivals.items():
            yield f"{name}: {arrivals.sent:,} sent, {arrivals}"


class Former:
    """The product at a commit, to start agents of it with the packages of this checkout."""

    def __init__(self, folder: Path, commit: str) -> None:
        self._folder = folder
        archive = subprocess.run(
            ["git", "archive", commit, "federator"], cwd=CHECKOUT, capture_output=True, check=False
        )
        if archive.returncode:
            reason = archive.stderr.decode().strip()
            raise LinkError(f"--since {commit}: a commit of this checkout is wanted: {reason}")
        folder.mkdir(parents=True)
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)

    def spawn(self, command: list[str], *, log: Path) -> Process:
        # The module is looked for in the working directory first.
        return children.spawn(["env", "-C", str(self._folder), *command], log=log)


async def run(settings: Settings, folder: Path, tell: Tell) -> Outcome:
    """Change agents from a former commit to this checkout, one by one, under traffic.

    Exits 0 when every publication arrived once and in order; 1 otherwise.
    """
    former = Former(folder / "former", settings.since)
    async with Stage(folder, broker_options=DEEP, spawn=former.spawn) as stage:
        for id in BROKERS:
            await stage.broker(id, persistence=True)
        for id in BROKERS:
            await stage.agent(
                id, {other: stage.brokers[other].url for other in LINE.neighbours[id]}
            )
        await _linked(stage)
        here, there = ENDS
        streams = [
            stage.stream((f"broker {a}", a), (f"broker {b}", b))
            for a, b in ((here, there), (there, here))
        ]
        async with flowing(streams):
            ended = asyncio.Event()
            counted = [
                asyncio.create_task(each.until(ended, settings.rate_hz, PUBLICATIONS_MAX))
                for each in streams
            ]
            restarts = 0
            for id in BROKERS:
                tell(f"the agent of broker {id} changes; then each is killed and starts again")
                await _changed(stage, id)
                await _linked(stage)
                for again in BROKERS:
                    stage.agents[again].kill9()
                    await stage.agents[again].start()
                    await _linked(stage)
                restarts += 1 + len(BROKERS)
            ended.set()
            arrivals = await asyncio.gather(*counted)
        came = {each.name: got for each, got in zip(streams, arrivals, strict=True)}
        return Outcome(settings.since, restarts, came)


async def _changed(stage: Stage, id: BrokerId) -> None:
    """Stop a former agent, and start one of this checkout with what it left."""
    former = stage.agents[id]
    await former.stop()
    stage.agents[id] = AgentProcess(former.folder, former.config, children.spawn)
    await stage.agents[id].start()


async def _linked(stage: Stage) -> None:
    await stage.until(lambda pages: unlinked(pages, LINE.neighbours))
    await asyncio.sleep(CALM_S)


command = experiment("upgrade", Settings, run)
