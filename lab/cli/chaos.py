"""``federator-lab chaos``: faults on real brokers and agents while checkers count every message.

Exit codes: 0 when every promise held, 1 when one did not, 69 when the grid did not start.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
import uvloop
from rich.console import Console
from rich.status import Status

from federator.cli.options import FILE, FOLDER
from federator.command_line import INTERRUPTED
from lab.chaos.run import ChaosRun, Outcome, Plan
from lab.chaos.schedule import KINDS, MIXED
from lab.chaos.stage import available
from lab.chaos.verdict import as_json, render
from lab.frame.printing import (
    log_nothing,
    new_folder,
    remove,
    report_console,
    until_stopped,
    write_json,
)
from lab.frame.settings import options

FAILED: Final = 1
REPORT_COLUMNS: Final = 132


@click.command(name="chaos")
@options(Plan)
@click.option("--list", "listing", is_flag=True, help="Name the fault classes and end.")
@click.option("--json", "json_file", type=FILE, help="Write counts, schedule and violations here.")
@click.option(
    "--keep",
    type=FOLDER,
    help="Keep configurations, state and logs in this folder. Kept anyway after a violation.",
)
def command(plan: Plan, listing: bool, json_file: Path | None, keep: Path | None) -> int:
    """Hurt a grid of real brokers and agents, and count every message.

    Clients publish and subscribe with persistent sessions while brokers and agents are killed and
    paused, and links cut, silenced, reset and delayed, in an order drawn from the seed. What was
    acknowledged and not delivered, delivered twice, or out of order is a broken promise, unless
    a dead broker took it along: that is counted apart ("spared", lost + twice).
    """
    if listing:
        for name, kind in KINDS.items():
            click.echo(f"{name:<24}{kind.what}")
        click.echo(f"{MIXED:<24}two or three of them at once")
        return 0
    folder = new_folder(keep, verb="chaos")
    outcome = _run(plan, folder)
    write_json(json_file, as_json(outcome))
    console = report_console(REPORT_COLUMNS)
    console.print(render(outcome))
    if outcome.held:
        remove(folder, unless=keep)
        return 0
    click.echo(f"logs and state: {folder}")
    return FAILED


def _run(plan: Plan, folder: Path) -> Outcome:
    # Strangers connect as agents do, and would log as they do.
    log_nothing()
    console = Console(stderr=True)
    with console.status("starting") as status:
        progress = _Progress(console, status, plan.minutes)
        run = ChaosRun(plan, folder, small_disks=available(), progress=progress)
        try:
            return uvloop.run(until_stopped(run.run(), name="chaos"))
        except click.exceptions.Exit:
            raise click.exceptions.Exit(INTERRUPTED) from None


@dataclass(slots=True)
class _Progress:
    """One line on a terminal; elsewhere a line when something new begins."""

    _console: Console
    _status: Status
    _minutes: float
    _latest: str = ""

    def __call__(self, what: str, at_s: float) -> None:
        if self._console.is_terminal:
            clock = f"{int(at_s) // 60:02}:{int(at_s) % 60:02} of {self._minutes:g} min"
            self._status.update(f"{clock}  {what}")
            return
        begins = what.rpartition(": ")[0] if what.endswith(" owed") else what
        if begins and begins != self._latest and not what.startswith(("starting", "warming")):
            self._latest = begins
            click.echo(f"{at_s:7.1f} s  {begins}", err=True)
