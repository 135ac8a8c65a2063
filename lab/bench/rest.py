"""What agents take while nothing happens: memory, processor time, and how often they wake up.

Nine brokers in a square, an agent beside each, and at each broker one client that subscribes its
share of the filters and hears nothing. Once all agents know all filters, nobody is asked for a
while: what is left is what an agent does by itself. All is read from the kernel's own accounts of
the processes; agents are started as operators start them, not forked from a prepared interpreter.

Each agent has told its metrics once before, as one that is watched has. A wake-up is a voluntary
context switch of any of its threads: it waited, and was let run. So it counts more than timers:
what the broker or a neighbour says wakes an agent, too.

Source: proc(5), ``/proc/PID/status``, ``/proc/PID/task/TID/schedstat``, ``/proc/PID/smaps``.
"""

import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from federator.errors import LinkError
from federator.protocol.types import BrokerId
from lab.bench import traced
from lab.bench.filters import KNOWN_TIMEOUT_S, made_up_filters, unknown
from lab.bench.processor import resident_mb
from lab.frame.settings import setting
from lab.grid.processes import children
from lab.grid.processes.agent import AgentProcess
from lab.grid.processes.children import get
from lab.grid.running import RunningGrid
from lab.grid.topology import Grid

SIDE: Final = 3
POLL_S: Final = 0.5

_SWITCHES: Final = re.compile(r"^voluntary_ctxt_switches:\s*(\d+)", re.MULTILINE)
_MAPPING: Final = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \S+ *(.*)$")


@dataclass(frozen=True, slots=True)
class Settings:
    """How large the grid's agents are, how long they are looked at, and what is told of them."""

    filters: int = setting(1_000, "Of all clients.", 9, 100_000)
    seconds: float = setting(60.0, "Of the measurement.", 1, 3_600)
    settle_s: float = setting(60.0, "Before it.", 0, 3_600, option="--settle")
    signed: bool = setting(default=False, about="Agents have keys.")
    traced: bool = setting(
        default=False,
        about="Print instead what takes the memory: by what is imported, and by who allocates.",
    )


@dataclass(frozen=True, slots=True)
class AtRest:
    """What one agent took."""

    agent: BrokerId
    resident_mb: float  # 10**6 bytes
    private_mb: float  # of it, what no other process shares
    processor_share: float  # of one core
    wakes_per_s: float


async def measure_rest(
    settings: Settings,
    folder: Path,
    progress: Callable[[str], None],
    look: Callable[[dict[BrokerId, AgentProcess]], None],
) -> list[AtRest]:
    """Start the grid, wait until it is quiet, and read what each agent takes.

    ``look`` is shown the agents in the end.

    Raises ``LinkError``: something did not start, or did not come to know the filters in time.
    """
    nine, spawn = Grid(SIDE, SIDE), traced.spawn if settings.traced else children.spawn
    async with RunningGrid(
        nine, folder, link_delay_ms=0, signed=settings.signed, spawn=spawn, progress=progress
    ) as grid:
        await _subscribe(grid, made_up_filters(settings.filters))
        for agent in grid.agents.values():
            await get(agent.http_port, "/metrics", who=f"agent {agent.pid}")
        progress("quiet")
        await asyncio.sleep(settings.settle_s)
        pids = {id: agent.pid for id, agent in grid.agents.items()}
        before, since_s = {id: _account(pid) for id, pid in pids.items()}, time.monotonic()
        progress("measured")
        await asyncio.sleep(settings.seconds)
        after, took_s = {id: _account(pid) for id, pid in pids.items()}, time.monotonic() - since_s
        look(grid.agents)
        return [
            AtRest(
                id,
                resident_mb(pid),
                _private_mb(pid),
                (after[id].processor_s - before[id].processor_s) / took_s,
                (after[id].wakes - before[id].wakes) / took_s,
            )
            for id, pid in pids.items()
        ]


async def _subscribe(grid: RunningGrid, filters: list[str]) -> None:
    for number, here in enumerate(grid.grid.ids):
        await grid.client(here, f"at-rest-{here}", *filters[number :: len(grid.grid.ids)], qos=0)
    known = partial(unknown, len(filters))
    await grid.until(known, within_s=KNOWN_TIMEOUT_S, poll_s=POLL_S)


@dataclass(frozen=True, slots=True)
class _Account:
    processor_s: float
    wakes: int


def _account(pid: int) -> _Account:
    processor_ns = wakes = 0
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            processor_ns += int((task / "schedstat").read_text(encoding="ascii").split()[0])
            found = _SWITCHES.search((task / "status").read_text(encoding="utf-8"))
            wakes += int(found.group(1)) if found else 0
    except OSError as error:
        raise LinkError(f"process {pid} is gone: {error.strerror}") from error
    return _Account(processor_ns / 1e9, wakes)


def _private_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    lines = [line.split() for line in text.splitlines() if line.startswith("Private_")]
    return sum(int(line[1]) for line in lines) * 1_024 / 1e6


def mappings_mb(pid: int) -> dict[str, float]:
    """Resident memory of ``pid`` by what is mapped: a file's name, or Python's and C's heap."""
    found: dict[str, float] = {}
    name = ""
    for line in Path(f"/proc/{pid}/smaps").read_text(encoding="utf-8").splitlines():
        if begins := _MAPPING.match(line):
            path = begins.group(1)
            name = path.rpartition("/")[2] if path.startswith("/") else "heap, stacks"
        elif line.startswith("Rss:"):
            found[name] = found.get(name, 0.0) + int(line.split()[1]) * 1_024 / 1e6
    return found
