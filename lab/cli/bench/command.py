"""``federator-lab bench``: a broker, a gateway, bridges and our agents, side by side.

Exit codes: 0 when everything arrived once, 1 when something was lost or came twice, 69 when a
system did not start. Whether the bars are met does not change the exit code.
"""

import asyncio
import json
import logging
from dataclasses import asdict, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import structlog
from rich.console import Console
from rich.table import Table

from federator.cli.options import FILE, FOLDER
from federator.errors import LinkError
from lab.cli.bench.lossy import lossy, lossy_study
from lab.cli.bench.rest import rest
from lab.cli.bench.routes import routes
from lab.cli.common import Bars, folder_for, numbers, report_console, until_stopped

FAULTY = 1
REPORT_COLUMNS = 140
WINDOW_MAX = 60_000  # below the number of packet identifiers
RATE_MAX = 100_000
CLIENTS_MAX = 400
PAYLOAD_MAX = 2_000_000
HOPS_MAX = 20
_AGENTS = ("federator", "direct", "polling", "metrics", "signed", "sealed", "proven")
SYSTEMS = ("echo", "broker", "gateway", "bridge", "limit", "limit-direct", *_AGENTS)
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


def _names(
    context: click.Context, option: click.Parameter, text: str | None
) -> tuple[str, ...] | None:
    """Names of systems written as ``bridge,federator``."""
    if text is None:
        return None
    names = tuple(text.split(","))
    if unknown := sorted(set(names) - set(SYSTEMS)):
        raise click.BadParameter(
            f"{', '.join(unknown)}: of {', '.join(SYSTEMS)} wanted", context, option
        )
    return names


@click.group(name="bench", invoke_without_command=True)
@click.option("--repetitions", type=click.IntRange(1, 100), help="Of every run. [3]")
@click.option("--systems", callback=_names, metavar="NAME[,NAME]", help=f"Of {', '.join(SYSTEMS)}.")
@click.option("--clients", type=click.IntRange(2, CLIENTS_MAX), help="Half publish. [2]")
@click.option("--hops", callback=numbers, metavar="N[,N]", help="Links to cross. [1,3]")
@click.option("--qos", callback=numbers, metavar="N[,N]", help="0, 1 or both. [0,1]")
@click.option("--rates", callback=numbers, metavar="N[,N]", help="For delays. [1000,10000]")
@click.option("--windows", callback=numbers, metavar="N[,N]", help="To try. [100,300 ... 8000]")
@click.option("--seconds", type=click.FloatRange(0.1, 600), help="Of every run. [3]")
@click.option(
    "--link-delay-ms", type=click.FloatRange(0, 1000), help="Of every link, each way. [0]"
)
@click.option(
    "--payload-bytes", type=click.IntRange(20, PAYLOAD_MAX), help="Of every message. [64]"
)
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
    /,
    quick: bool,
    json_file: Path | None,
    keep_logs: Path | None,
    **options: Any,  # noqa: ANN401  # of the plan
) -> int | None:
    """Measure one broker, bridges and our agents side by side, with real processes."""
    if find_spec("numpy") is None:
        raise LinkError("the bench needs numpy: pip install numpy")
    if context.invoked_subcommand is not None:
        return None
    changes = {name: value for name, value in options.items() if value is not None}
    if changes.get("clients", 2) % 2:
        raise click.UsageError("--clients: an even number wanted, for they come in pairs")
    if not set(changes.get("qos", ())) <= {0, 1}:
        raise click.UsageError("--qos: 0, 1 or both wanted")
    for name, most in (("windows", WINDOW_MAX), ("rates", RATE_MAX), ("hops", HOPS_MAX)):
        if not all(1 <= each <= most for each in changes.get(name, ())):
            raise click.UsageError(f"--{name}: 1 to {most} wanted")
    with folder_for(keep_logs, verb="bench") as folder:
        large = changes.get("payload_bytes", 0) >= LARGE_BYTES
        defaults = {**(_LARGE if large else {}), **(_QUICK if quick else {})}
        work = _measure(folder, {**defaults, **changes}, json_file)
        return asyncio.run(until_stopped(work, name="bench"))


async def _measure(folder: Path, changes: dict[str, Any], json_file: Path | None) -> int:
    from lab.bench.experiment import Experiment, Plan  # noqa: PLC0415 - numpy is optional
    from lab.bench.report import render  # noqa: PLC0415

    plan = replace(Plan(), **changes)
    with Bars() as bars:
        async with Experiment(plan, folder, progress=bars) as experiment:
            results = await experiment.run()
    if json_file is not None:
        _write(json_file, [json.dumps(asdict(record)) for record in results.records()])
    console = report_console(REPORT_COLUMNS)
    console.print(render(plan, results, experiment.faults))
    return FAULTY if experiment.faults else 0


def _write(file: Path, records: list[str]) -> None:
    """A JSON list with one record a line."""
    file.write_text("[\n" + ",\n".join(records) + "\n]\n", encoding="utf-8")


@command.command(name="filters")
@click.option("--count", type=click.IntRange(1_000, 200_000), help="Filters in the agent. [100000]")
@click.option(
    "--json", "json_file", type=FILE, help="Also write one record per figure here, as a JSON list."
)
def filters_command(count: int | None, json_file: Path | None) -> int:
    """Measure lookups, memory and a lost link of one agent with very many filters."""
    from lab.bench.filters import measure_filters  # noqa: PLC0415

    count = 100_000 if count is None else count
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))

    with Bars() as bars, folder_for(None, verb="bench") as folder:
        progress = partial(bars, "subscribing", total=count)
        costs = asyncio.run(measure_filters(folder, filters=count, progress=progress))
    table = Table(title=f"One agent, {count:,} filters", title_justify="left")
    for name in ("", "measured", "at most"):
        table.add_column(name, justify="right" if name else "left")
    records = []
    for metric, what, unit, bound in _FILTER_ROWS:
        value = getattr(costs, metric)
        table.add_row(what, f"{value:,.2f} {unit}", "" if bound is None else f"{bound:g} {unit}")
        row = {"system": "agent", "hops": 0, "qos": 0, "filters": count}
        records.append(json.dumps({**row, "metric": metric, "value": value, "unit": unit}))
    if json_file is not None:
        _write(json_file, records)
    Console().print(table)
    return 0


command.add_command(lossy)
command.add_command(lossy_study)
command.add_command(rest)
command.add_command(routes)
