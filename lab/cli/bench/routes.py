"""``federator-lab bench routes``: one prefix filter beside thousands of single ones.

Exit codes: 0; 69 when something did not start.
"""

from pathlib import Path
from statistics import median

import click
import uvloop
from rich.table import Table

from federator.cli.options import FILE, option
from lab.bench.routes import RouteCost, measure_routes
from lab.frame.printing import (
    folder_for,
    log_nothing,
    report_console,
    table_of,
    until_stopped,
    write_json,
)

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
    log_nothing()
    costs: list[RouteCost] = []
    for single in (False, True) * repetitions:
        with folder_for(None, verb="bench") as folder:
            work = measure_routes(
                folder, topics=topics, single=single, rate_hz=rate_hz, seconds=seconds
            )
            found = uvloop.run(until_stopped(work, name="routes"))
        costs += found
    write_json(json_file, costs)
    report_console(COLUMNS).print(_table(costs, topics))
    return 0


def _table(costs: list[RouteCost], topics: int) -> Table:
    rows = []
    for qos in sorted({cost.qos for cost in costs}):
        of_qos = [cost for cost in costs if cost.qos == qos]
        prefix = median(cost.agents_us for cost in of_qos if cost.filters == 1)
        single = median(cost.agents_us for cost in of_qos if cost.filters > 1)
        figures = (f"{prefix:.0f}", f"{single:.0f}", f"{single / prefix:.2f}")
        rows.append((str(qos), *figures, f"{sum(cost.missing for cost in of_qos):,}"))
    columns = ("one prefix filter, us", f"{topics:,} single ones, us", "ratio", "missing")
    title = f"{topics:,} topics, processor time of both agents for a publication"
    return table_of(("QoS", *columns), rows, title=title)
