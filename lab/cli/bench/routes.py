"""``federator-lab bench routes``: one prefix filter beside thousands of single ones.

Exit codes: 0; 69 when something did not start.
"""

import json
import logging
from dataclasses import asdict
from pathlib import Path
from statistics import median

import click
import structlog
import uvloop
from rich.table import Table

from federator.cli.options import FILE, option
from lab.bench.routes import RouteCost, measure_routes
from lab.cli.common import folder_for, report_console, until_stopped

COLUMNS = 100


@click.command(name="routes")
@option("--topics", type=click.IntRange(10, 50_000), default=10_000, help="That are published on.")
@option("--rate", "rate_hz", type=click.IntRange(1, 50_000), default=5_000, help="Messages/s.")
@option("--seconds", type=click.FloatRange(1, 600), default=5.0, help="Of every run.")
@option("--repetitions", type=click.IntRange(1, 100), default=3, help="Of both, in turn.")
@click.option("--json", "json_file", type=FILE, help="Also write one record per run here.")
def routes(
    topics: int, rate_hz: int, seconds: float, repetitions: int, json_file: Path | None
) -> int:
    """Measure what agents take for a publication: one prefix filter, or a filter for each topic."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    costs: list[RouteCost] = []
    for single in (False, True) * repetitions:
        with folder_for(None, verb="bench") as folder:
            work = measure_routes(
                folder, topics=topics, single=single, rate_hz=rate_hz, seconds=seconds
            )
            found = uvloop.run(until_stopped(work, name="routes"))
        costs += found
    if json_file is not None:
        json_file.write_text(json.dumps([asdict(cost) for cost in costs], indent=1) + "\n")
    report_console(COLUMNS).print(_table(costs, topics))
    return 0


def _table(costs: list[RouteCost], topics: int) -> Table:
    table = Table(title=f"{topics:,} topics, processor time of both agents for a publication")
    for column in (
        "QoS",
        "one prefix filter, us",
        f"{topics:,} single ones, us",
        "ratio",
        "missing",
    ):
        table.add_column(column, justify="right")
    for qos in sorted({cost.qos for cost in costs}):
        of_qos = [cost for cost in costs if cost.qos == qos]
        prefix = median(cost.agents_us for cost in of_qos if cost.filters == 1)
        single = median(cost.agents_us for cost in of_qos if cost.filters > 1)
        missing = sum(cost.missing for cost in of_qos)
        table.add_row(
            str(qos), f"{prefix:.0f}", f"{single:.0f}", f"{single / prefix:.2f}", f"{missing:,}"
        )
    return table
