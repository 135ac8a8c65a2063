"""``federator-lab bench rest``: what an agent takes that has nothing to do.

Exit codes: 0; 69 when something did not start. Whether the bars are met does not change the exit
code.
"""

import json
import os
import signal
import time
from dataclasses import astuple
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import click
import uvloop
from rich.table import Table

from federator.cli.options import FILE, FOLDER
from federator.errors import LinkError
from federator.protocol.types import BrokerId
from lab.bench import traced as tracing
from lab.bench.rest import AtRest, Settings, mappings_mb, measure_rest
from lab.frame.printing import (
    Bar,
    bars_table,
    folder_for,
    log_nothing,
    report_console,
    table_of,
    until_stopped,
    write_json,
)
from lab.frame.settings import options
from lab.grid.processes.agent import AgentProcess

COLUMNS = 120
RESIDENT_MB_MAX = 40.0
PROCESSOR_SHARE_MAX = 0.003
MAPPINGS_SHOWN = 10
PACKAGES_SHOWN = 24
TRACED_TIMEOUT_S = 30.0
TRACED_POLL_S = 0.1
ROOT = f"{Path(__file__).parents[3]}/"


@click.command(name="rest")
@options(Settings)
@click.option("--json", "json_file", type=FILE, help="Also write one record per agent here.")
@click.option("--keep-logs", type=FOLDER, help="Keep configurations, state and logs here.")
def rest(settings: Settings, json_file: Path | None, keep_logs: Path | None) -> int:
    """Measure agents at rest: a 3 x 3 grid in which nobody publishes.

    Memory is resident memory of /proc/PID/statm, processor time that of schedstat, wake-ups are
    voluntary context switches of all threads.
    """
    log_nothing()
    mapped: dict[str, float] = {}
    account: dict[str, Any] = {}

    def look(agents: dict[BrokerId, AgentProcess]) -> None:
        first = next(iter(agents.values()))
        mapped.update(mappings_mb(first.pid))
        if settings.traced:
            account.update(_account_of(first))

    with folder_for(keep_logs, verb="bench") as folder:
        work = measure_rest(settings, folder, partial(click.echo, err=True), look)
        found = uvloop.run(until_stopped(work, name="rest"))
    console = report_console(COLUMNS)
    if settings.traced:
        for table in _traced(account):
            console.print(table)
        return 0
    write_json(json_file, found)
    security = "signed" if settings.signed else "open"
    console.print(_agents(found, f"Nine agents at rest, {settings.filters:,} filters, {security}"))
    console.print(bars_table("The worst of them", _judged(found)))
    console.print(_mappings(mapped))
    return 0


def _judged(found: list[AtRest]) -> list[Bar]:
    """What is asked for holds for every agent, so the worst of them counts."""
    resident_mb = max(each.resident_mb for each in found)
    share = max(each.processor_share for each in found)
    return [
        Bar(
            "resident memory",
            f"<= {RESIDENT_MB_MAX:g} MB",
            f"{resident_mb:.1f} MB",
            resident_mb <= RESIDENT_MB_MAX,
        ),
        Bar(
            "processor",
            f"<= {PROCESSOR_SHARE_MAX:.1%} of a core",
            f"{share:.2%}",
            share <= PROCESSOR_SHARE_MAX,
        ),
    ]


def _agents(found: list[AtRest], title: str) -> Table:
    columns = ("agent", "resident MB", "of it private", "of a core", "wake-ups/s")
    figures = [each[1:] for each in map(astuple, found)]
    middle = [median(column) for column in zip(*figures, strict=True)]
    names = [*(str(each.agent) for each in found), "median"]
    rows = [
        (name, f"{resident:.1f}", f"{private:.1f}", f"{share:.2%}", f"{wakes:.1f}")
        for name, (resident, private, share, wakes) in zip(names, [*figures, middle], strict=True)
    ]
    return table_of(columns, rows, title=title)


def _mappings(mapped: dict[str, float]) -> Table:
    largest = sorted(mapped.items(), key=lambda each: -each[1])
    rest_mb = sum(mb for _, mb in largest[MAPPINGS_SHOWN:])
    rows = [(name, f"{mb:.1f}") for name, mb in (*largest[:MAPPINGS_SHOWN], ("all else", rest_mb))]
    return table_of(("mapped", "MB"), rows, title="Where the first one's memory lies")


def _account_of(agent: AgentProcess) -> dict[str, Any]:
    """What a traced agent says of its memory. Raises ``LinkError``: nothing."""
    os.kill(agent.pid, signal.SIGUSR1)
    file, until_s = agent.folder / tracing.FILE, time.monotonic() + TRACED_TIMEOUT_S
    while not file.exists():
        if time.monotonic() > until_s:
            raise LinkError(f"agent {agent.pid} did not say what takes its memory")
        time.sleep(TRACED_POLL_S)
    account: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return account


def _traced(account: dict[str, Any]) -> list[Table]:
    packages = sorted(account["imported"].items(), key=lambda each: -each[1][1])
    shown, rest = packages[:PACKAGES_SHOWN], [each for _, each in packages[PACKAGES_SHOWN:]]
    shown.append(("all else", [sum(column) for column in zip(*rest, strict=True)] or [0, 0]))
    title = f"What the first one imported, of {account['traced_bytes'] / 1e6:.1f} MB traced"
    rows = [(name, str(modules), f"{size / 1e3:,.0f}") for name, (modules, size) in shown]
    imported = table_of(("package", "modules", "kB"), rows, title=title)
    lines = [
        (at.rpartition("site-packages/")[2].removeprefix(ROOT), f"{count:,}", f"{size / 1e3:,.0f}")
        for at, count, size in account["lines"]
    ]
    title = "What it allocated while it ran, and holds"
    return [imported, table_of(("line", "blocks", "kB"), lines, title=title)]
