"""What faults must not do to the agents themselves: grow, leak descriptors, flood their log.

Sampled from ``/proc`` while the run goes on; a restarted agent continues its predecessor's series
once it has started up, for what counts is what a machine must spare for it.
"""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from federator.protocol.types import BrokerId
from lab.bench.processor import resident_mb
from lab.grid.processes.agent import AgentProcess

SAMPLE_S: Final = 2.0
STARTS_UP_S: Final = 10.0
"""A process is not looked at so long: it has not taken yet what it needs."""

GROWTH_MAX: Final = 1.1
GROWTH_SLACK_KIB: Final = 8 * 1_024
"""In runs that end before windows and caches are full."""

SETTLED_S: Final = 20 * 60.0
"""Longer runs have no slack."""

FILES_SLACK: Final = 8
"""Connections that are being made again, and a log segment that is being turned over."""

POINTS_MAX: Final = 200
"""Of a series in the report."""

LINES_PER_S_MAX: Final = 1.0
LINES_SLACK: Final = 200
"""For starts, goodbyes and new controllers, which fill a short run's log."""

LINES_PER_FAULT: Final = 4
"""More in the mean: an agent that is back tells twenty, its neighbours a few."""

_TROUBLE: Final = ("Traceback", '"exception"')


@dataclass(frozen=True, slots=True)
class Vital:
    """One agent's figures over a run."""

    agent: BrokerId
    resident_kib_second_quarter: float
    resident_kib_last_quarter: float
    resident_kib: list[int]
    files_second_quarter: float
    files_last_quarter: float
    log_lines: int
    log_lines_per_s: float
    log_most: list[tuple[str, int]]
    faults: list[str]


class Vitals:
    """Samples all agents of a grid."""

    def __init__(self, agents: dict[BrokerId, AgentProcess]) -> None:
        self._agents = agents
        self._resident_kib: dict[BrokerId, list[int]] = {here: [] for here in agents}
        self._files: dict[BrokerId, list[int]] = {here: [] for here in agents}
        self._born: dict[BrokerId, tuple[int, float]] = {}  # process, and when it was first seen
        self._lines_before = {here: len(agent.log_lines()) for here, agent in agents.items()}

    def sample(self, now_s: float) -> None:
        for here, agent in self._agents.items():
            if not agent.running:
                continue
            pid, seen_s = self._born.get(here, (0, now_s))
            if pid != agent.pid:
                self._born[here] = agent.pid, now_s
                continue
            if now_s - seen_s < STARTS_UP_S:
                continue
            try:
                resident_kib = round(resident_mb(agent.pid) * 1e6 / 1_024)
                files = len(list(Path(f"/proc/{agent.pid}/fd").iterdir()))
            except OSError:
                continue  # it ended while we looked
            self._resident_kib[here].append(resident_kib)
            self._files[here].append(files)

    def judge(self, elapsed_s: float, faults: int) -> list[Vital]:
        lines_max = LINES_PER_S_MAX * elapsed_s + LINES_PER_FAULT * faults + LINES_SLACK
        return [self._judge(here, elapsed_s, lines_max) for here in self._agents]

    def _judge(self, here: BrokerId, elapsed_s: float, lines_max: float) -> Vital:
        resident_kib = self._resident_kib[here]
        new = self._agents[here].log_lines()[self._lines_before[here] :]
        second, last = (_quarter(resident_kib, which) for which in (1, 3))
        files_second, files_last = (_quarter(self._files[here], which) for which in (1, 3))
        rate = len(new) / max(elapsed_s, 1.0)
        faults = []
        slack_kib = 0 if elapsed_s > SETTLED_S else GROWTH_SLACK_KIB
        if second and last > GROWTH_MAX * second + slack_kib:
            faults.append(f"memory grew from {second:.0f} to {last:.0f} KiB")
        if files_second and files_last > files_second + FILES_SLACK:
            faults.append(f"open files grew from {files_second:.0f} to {files_last:.0f}")
        if len(new) > lines_max:
            faults.append(f"{rate:.1f} log lines a second")
        faults += [f"log: {line[:300]}" for line in new if any(word in line for word in _TROUBLE)]
        names = Counter(_event(line) for line in new)
        return Vital(
            agent=here,
            resident_kib_second_quarter=second,
            resident_kib_last_quarter=last,
            resident_kib=resident_kib[:: 1 + len(resident_kib) // POINTS_MAX],
            files_second_quarter=files_second,
            files_last_quarter=files_last,
            log_lines=len(new),
            log_lines_per_s=rate,
            log_most=names.most_common(5),
            faults=faults[:10],
        )


def _quarter(values: list[int], which: int) -> float:
    """The median of the ``which``-th quarter of the samples, from 0; 0 without any."""
    count = len(values)
    part = values[count * which // 4 : count * (which + 1) // 4]
    return median(part) if part else 0.0


def _event(line: str) -> str:
    try:
        entry: Any = json.loads(line)
    except ValueError:
        return "(not JSON)"
    return str(entry.get("event", "?")) if isinstance(entry, dict) else "(not JSON)"
