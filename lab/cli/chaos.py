"""``federator-lab chaos``: faults on real brokers and agents while checkers count every message.

Exit codes: 0 when every promise held, 1 when one did not, 69 when the grid did not start.
"""

import json
import logging
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import structlog
import uvloop
from rich.console import Console
from rich.status import Status

from federator.cli.options import FILE, FOLDER, option
from federator.command_line import INTERRUPTED
from federator.protocol.parameters import Strategy
from lab.chaos.run import ChaosRun, Outcome, Plan
from lab.chaos.schedule import KINDS, MIXED
from lab.chaos.stage import available
from lab.chaos.verdict import as_json, render
from lab.cli.common import new_folder, report_console, until_stopped
from lab.grid.topology import Grid

FAILED: Final = 1
REPORT_COLUMNS: Final = 132
CLASSES: Final = (*KINDS, MIXED)
QOS: Final = {"0": (0,), "1": (1,), "2": (2,), "mixed": (1, 2)}


def _classes(context: click.Context, option: click.Parameter, text: str | None) -> tuple[str, ...]:
    """Names of fault classes written as ``link-cut,mixed``."""
    if text is None:
        return CLASSES
    names = tuple(text.split(","))
    for name in names:
        if name not in CLASSES:
            raise click.BadParameter(f"{name!r}: see --list", context, option)
    return names


@click.command(name="chaos")
@option("--minutes", type=click.FloatRange(0.1, 1_440), default=3.0)
@option("--seed", type=click.IntRange(0), default=1)
@option("--rows", type=click.IntRange(1, 20), default=3)
@option("--columns", type=click.IntRange(1, 20), default=3)
@option("--redundancy", type=click.IntRange(1, 8), default=2)
@option(
    "--strategy", type=click.Choice([each.value for each in Strategy]), default=Strategy.MESH.value
)
@option("--link-delay-ms", type=click.FloatRange(0, 10_000), default=5.0)
@option("--rate", type=click.FloatRange(1, 10_000), default=500.0, help="msg/s in all.")
@option(
    "--qos",
    type=click.Choice(list(QOS)),
    default="1",
    callback=lambda _context, _option, name: QOS[name],
    help="Mixed: publications on each topic take turns between 1 and 2, for subscribers of each.",
)
@option("--payload-bytes", type=click.IntRange(20, 200_000), default=64)
@option(
    "--broker-queue",
    type=click.IntRange(100, 1_000_000),
    default=5_000,
    help="max_queued_messages of the brokers; must hold what comes while an agent is away.",
)
@option(
    "--sys-interval-s",
    type=click.IntRange(1, 3_600),
    default=10,
    help="Of the brokers: how often they count their subscriptions.",
)
@option(
    "--recovery-timeout-s",
    type=click.FloatRange(1, 3_600),
    default=30.0,
    help="After healing; longer is a violation.",
)
@click.option("--keep-s", type=click.IntRange(1, 604_800), help="The agents' custody.keep_s.")
@click.option("--rounds", type=click.IntRange(1), help="Of all classes, instead of --minutes.")
@click.option("--hold-s", type=click.FloatRange(0, 86_400), help="How long every fault lasts.")
@click.option(
    "--faults", "classes", callback=_classes, metavar="CLASS[,CLASS]", help="Which. [all]"
)
@click.option("--direct", is_flag=True, help="Frames go straight from agent to agent.")
@click.option(
    "--signed", is_flag=True, help="Agents have keys, and strangers are among the faults."
)
@click.option(
    "--alone",
    is_flag=True,
    help="All clients are at one broker without an agent: what Mosquitto does by itself.",
)
@click.option("--list", "listing", is_flag=True, help="Name the fault classes and end.")
@click.option("--fail-fast", is_flag=True, help="End at the first violation.")
@click.option("--json", "json_file", type=FILE, help="Write counts, schedule and violations here.")
@click.option(
    "--keep",
    type=FOLDER,
    help="Keep configurations, state and logs in this folder. Kept anyway after a violation.",
)
def command(
    minutes: float,
    rows: int,
    columns: int,
    listing: bool,
    json_file: Path | None,
    keep: Path | None,
    **options: Any,  # noqa: ANN401  # fields of Plan by name
) -> int:
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
    if rows * columns < 2:
        raise click.UsageError("--rows x --columns: at least 2 brokers wanted")
    plan = Plan(grid=Grid(rows, columns), minutes=minutes, **options)
    folder = new_folder(keep, verb="chaos")
    outcome = _run(plan, folder)
    if json_file is not None:
        json_file.write_text(json.dumps(as_json(outcome), indent=1) + "\n", encoding="utf-8")
    console = report_console(REPORT_COLUMNS)
    console.print(render(outcome))
    if outcome.held:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
        return 0
    click.echo(f"logs and state: {folder}")
    return FAILED


def _run(plan: Plan, folder: Path) -> Outcome:
    # Strangers connect as agents do, and would log as they do.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
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
