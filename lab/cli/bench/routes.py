"""``federator-lab bench routes``: one prefix filter beside thousands of single ones.

Exit codes: 0; 69 when something did not start.
"""

from pathlib import Path
from statistics import median

import click
import uvloop
from rich.table import Table

from federator.cli.options import FILE
from lab.bench.routes import RouteCost, Settings, measure_routes
from lab.frame.printing import (
    folder_for,
    log_nothing,
    report_console,
    table_of,
    until_stopped,
    write_json,
)
from lab.frame.settings import options

COLUMNS = 100


@click.command(name="routes")
@options(Settings)
@click.option("--json", "json_file", type=FILE, help="Also write one record per run here.")
def routes(settings: Settings, json_file: Path | None) -> int:
    """Measure what agents take for a publication: one prefix filter, or a filter for each topic."""
    log_nothing()
    costs: list[RouteCost] = []
    for single in (False, True) * settings.repetitions:
        with folder_for(None, verb="bench") as folder:
            work = measure_routes(settings, folder, single=single)
            costs += uvloop.run(until_stopped(work, name="routes"))
    write_json(json_file, costs)
    report_console(COLUMNS).print(_table(costs, settings.topics))
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
