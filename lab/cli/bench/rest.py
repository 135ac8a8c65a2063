"""``federator-lab bench rest``: what an agent takes that has nothing to do.

Exit codes: 0; 69 when something did not start. Whether the bars are met does not change the exit
code.
"""

import json
import logging
import os
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click
import structlog
import uvloop
from rich.table import Table

from federator.cli.options import FILE, FOLDER, option
from federator.errors import LinkError
from federator.protocol.types import BrokerId
from lab.bench import traced as tracing
from lab.bench.rest import AtRest, mappings_mb, measure_rest
from lab.cli.common import folder_for, report_console, until_stopped
from lab.grid.processes import children
from lab.grid.processes.agent import AgentProcess

COLUMNS = 120
RESIDENT_MB_MAX = 40.0
PROCESSOR_SHARE_MAX = 0.003
MAPPINGS_SHOWN = 10
PACKAGES_SHOWN = 24
TRACED_TIMEOUT_S = 30.0
TRACED_POLL_S = 0.1
ROOT = f"{Path(__file__).parents[3]}/"


@dataclass(frozen=True, slots=True)
class _Bar:
    what: str
    wanted: str
    got: str
    met: bool


@click.command(name="rest")
@option("--filters", type=click.IntRange(9, 100_000), default=1_000, help="Of all clients.")
@option("--seconds", type=click.FloatRange(1, 3_600), default=60.0, help="Of the measurement.")
@option("--settle", "settle_s", type=click.FloatRange(0, 3_600), default=60.0, help="Before it.")
@click.option("--signed", is_flag=True, help="Agents have keys.")
@click.option(
    "--traced",
    is_flag=True,
    help="Print instead what takes the memory: by what is imported, and by who allocates.",
)
@click.option("--json", "json_file", type=FILE, help="Also write one record per agent here.")
@click.option("--keep-logs", type=FOLDER, help="Keep configurations, state and logs here.")
def rest(
    filters: int,
    seconds: float,
    settle_s: float,
    signed: bool,
    traced: bool,
    json_file: Path | None,
    keep_logs: Path | None,
) -> int:
    """Measure agents at rest: a 3 x 3 grid in which nobody publishes.

    Memory is resident memory of /proc/PID/statm, processor time that of schedstat, wake-ups are
    voluntary context switches of all threads.
    """
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    mapped: dict[str, float] = {}
    told: dict[str, Any] = {}

    def look(agents: dict[BrokerId, AgentProcess]) -> None:
        first = next(iter(agents.values()))
        mapped.update(mappings_mb(first.pid))
        if traced:
            told.update(_told_by(first))

    with folder_for(keep_logs, verb="bench") as folder:
        work = measure_rest(
            folder,
            filters=filters,
            settle_s=settle_s,
            seconds=seconds,
            signed=signed,
            progress=lambda what: click.echo(what, err=True),
            spawn=tracing.spawn if traced else children.spawn,
            look=look,
        )
        found = uvloop.run(until_stopped(work, name="rest"))
    console = report_console(COLUMNS)
    if traced:
        for table in _traced(told):
            console.print(table)
        return 0
    if json_file is not None:
        json_file.write_text(json.dumps([asdict(each) for each in found], indent=1) + "\n")
    security = "signed" if signed else "open"
    console.print(_agents(found, f"Nine agents at rest, {filters:,} filters, {security}"))
    console.print(_bars(_judged(found)))
    console.print(_mappings(mapped))
    return 0


def _judged(found: list[AtRest]) -> list[_Bar]:
    """What is asked for holds for every agent, so the worst of them counts."""
    resident_mb = max(each.resident_mb for each in found)
    share = max(each.processor_share for each in found)
    return [
        _Bar(
            "resident memory",
            f"<= {RESIDENT_MB_MAX:g} MB",
            f"{resident_mb:.1f} MB",
            resident_mb <= RESIDENT_MB_MAX,
        ),
        _Bar(
            "processor",
            f"<= {PROCESSOR_SHARE_MAX:.1%} of a core",
            f"{share:.2%}",
            share <= PROCESSOR_SHARE_MAX,
        ),
    ]


def _agents(found: list[AtRest], title: str) -> Table:
    table = Table(title=title, title_justify="left")
    for name in ("agent", "resident MB", "of it private", "of a core", "wake-ups/s"):
        table.add_column(name, justify="right")
    rows = [(str(each.agent), *_figures(each)) for each in found]
    middle = _shown(
        median(each.resident_mb for each in found),
        median(each.private_mb for each in found),
        median(each.processor_share for each in found),
        median(each.wakes_per_s for each in found),
    )
    rows.append(("median", *middle))
    for row in rows:
        table.add_row(*row)
    return table


def _figures(each: AtRest) -> tuple[str, ...]:
    return _shown(each.resident_mb, each.private_mb, each.processor_share, each.wakes_per_s)


def _shown(
    resident_mb: float, private_mb: float, share: float, wakes_per_s: float
) -> tuple[str, ...]:
    return f"{resident_mb:.1f}", f"{private_mb:.1f}", f"{share:.2%}", f"{wakes_per_s:.1f}"


def _bars(bars: list[_Bar]) -> Table:
    table = Table("", "wanted", "got", "met", title="The worst of them", title_justify="left")
    for bar in bars:
        table.add_row(bar.what, bar.wanted, bar.got, "yes" if bar.met else "NO")
    return table


def _mappings(mapped: dict[str, float]) -> Table:
    table = Table("mapped", title="Where the first one's memory lies", title_justify="left")
    table.add_column("MB", justify="right")
    largest = sorted(mapped.items(), key=lambda each: -each[1])
    for name, mb in largest[:MAPPINGS_SHOWN]:
        table.add_row(name, f"{mb:.1f}")
    table.add_row("all else", f"{sum(mb for _, mb in largest[MAPPINGS_SHOWN:]):.1f}")
    return table


def _told_by(agent: AgentProcess) -> dict[str, Any]:
    """What a traced agent says of its memory. Raises ``LinkError``: nothing."""
    os.kill(agent.pid, signal.SIGUSR1)
    file, until_s = agent.folder / tracing.FILE, time.monotonic() + TRACED_TIMEOUT_S
    while not file.exists():
        if time.monotonic() > until_s:
            raise LinkError(f"agent {agent.pid} did not say what takes its memory")
        time.sleep(TRACED_POLL_S)
    told: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return told


def _traced(told: dict[str, Any]) -> list[Table]:
    title = f"What the first one imported, of {told['traced_bytes'] / 1e6:.1f} MB traced"
    imported = Table("package", title=title, title_justify="left")
    for name in ("modules", "kB"):
        imported.add_column(name, justify="right")
    packages = sorted(told["imported"].items(), key=lambda each: -each[1][1])
    for name, (modules, size) in packages[:PACKAGES_SHOWN]:
        imported.add_row(name, str(modules), f"{size / 1e3:,.0f}")
    rest = [each for _, each in packages[PACKAGES_SHOWN:]]
    size = sum(size for _, size in rest)
    imported.add_row("all else", str(sum(modules for modules, _ in rest)), f"{size / 1e3:,.0f}")
    lines = Table("line", title="What it allocated while it ran, and holds", title_justify="left")
    for name in ("blocks", "kB"):
        lines.add_column(name, justify="right")
    for at, count, size in told["lines"]:
        lines.add_row(
            at.rpartition("site-packages/")[2].removeprefix(ROOT),
            f"{count:,}",
            f"{size / 1e3:,.0f}",
        )
    return [imported, lines]
