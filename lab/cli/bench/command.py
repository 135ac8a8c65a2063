"""``federator-lab bench``: a broker, a gateway, bridges and our agents, side by side.

Exit codes: 0 when everything arrived once, 1 when something was lost or came twice, 69 when a
system did not start. Whether the bars are met does not change the exit code.
"""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from federator.cli.options import FILE, FOLDER, option
from lab.bench.experiment import Experiment, Plan
from lab.bench.filters import measure_filters
from lab.bench.report import render
from lab.cli.bench.lossy import lossy, lossy_study
from lab.cli.bench.rest import rest
from lab.cli.bench.routes import routes
from lab.frame.printing import (
    Bars,
    folder_for,
    log_nothing,
    report_console,
    table_of,
    until_stopped,
    write_json,
)
from lab.frame.settings import options

FAULTY = 1
REPORT_COLUMNS = 140
_FILTER_ROWS = (
    ("cached_us", "lookup, topic known", "us", 2),
    ("uncached_us", "lookup, new topic", "us", 50),
    ("resident_mb", "resident memory", "MB", 100),
    ("resident_empty_mb", "the same without filters", "MB", None),
    ("loss_stall_ms", "longest silence after the other broker was killed", "ms", None),
)
"""Figure, what it is, unit, and what the project asks for."""

LARGE_BYTES = 8_192
_LARGE = {"windows": (1, 2, 4, 8, 16, 32), "narrow": 2, "rates": (20,)}
"""Of a plan with such payloads: what is on its way must fit into queues that count bytes."""

_QUICK = {"repetitions": 1, "seconds": 1.0, "warm_up_s": 0.3, "climb_s": 0.3, "climbs": 1}


@click.group(name="bench", invoke_without_command=True)
@options(Plan, sparse=True)
@click.option("--quick", is_flag=True, help="One short repetition: shows that it works.")
@click.option(
    "--json",
    "json_file",
    type=FILE,
    help="Also write one record per system, hops, QoS and metric here, as a JSON list.",
)
@click.option(
    "--keep-logs", type=FOLDER, help="Keep configurations, state and logs in this folder."
)
@click.pass_context
def command(
    context: click.Context,
    given: dict[str, Any],
    quick: bool,
    json_file: Path | None,
    keep_logs: Path | None,
) -> int | None:
    """Measure one broker, bridges and our agents side by side, with real processes."""
    if context.invoked_subcommand is not None:
        return None
    large = given.get("payload_bytes", 0) >= LARGE_BYTES
    try:
        plan = Plan(**{**(_LARGE if large else {}), **(_QUICK if quick else {}), **given})
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    with folder_for(keep_logs, verb="bench") as folder:
        return asyncio.run(until_stopped(_measure(plan, folder, json_file), name="bench"))


async def _measure(plan: Plan, folder: Path, json_file: Path | None) -> int:
    with Bars() as bars:
        async with Experiment(plan, folder, progress=bars) as experiment:
            results = await experiment.run()
    write_json(json_file, [*results.records()])
    console = report_console(REPORT_COLUMNS)
    console.print(render(plan, results, experiment.faults))
    return FAULTY if experiment.faults else 0


@command.command(name="filters")
@option("--count", type=click.IntRange(1_000, 200_000), default=100_000, help="In the agent.")
@click.option("--json", "json_file", type=FILE, help="Also write one record per figure here.")
def filters_command(count: int, json_file: Path | None) -> int:
    """Measure lookups, memory and a lost link of one agent with very many filters."""
    log_nothing()
    with Bars() as bars, folder_for(None, verb="bench") as folder:
        progress = partial(bars, "subscribing", total=count)
        costs = asyncio.run(measure_filters(folder, filters=count, progress=progress))
    rows, records = [], []
    for metric, what, unit, bound in _FILTER_ROWS:
        value = getattr(costs, metric)
        rows.append((what, f"{value:,.2f} {unit}", "" if bound is None else f"{bound:g} {unit}"))
        records.append(
            {"system": "agent", "hops": 0, "qos": 0, "filters": count}
            | {"metric": metric, "value": value, "unit": unit}
        )
    write_json(json_file, records)
    title = f"One agent, {count:,} filters"
    Console().print(table_of(("", "measured", "at most"), rows, title=title))
    return 0


command.add_command(lossy)
command.add_command(lossy_study)
command.add_command(rest)
command.add_command(routes)
