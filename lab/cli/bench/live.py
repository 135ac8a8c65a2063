"""``script/bench analytics-live``: how far ``stream`` lags behind."""

import json
import tempfile
from dataclasses import asdict
from pathlib import Path

import click

from federator.cli.options import option
from lab.bench.live_lag import WARM_S, measure, warm_records
from lab.event_log.writing import Order, write


@click.command("bench-live")
@option("--rate", type=click.IntRange(1), default=50_000, help="Records/s.")
@option("--seconds", type=click.IntRange(1), default=60)
@option(
    "--warm-s",
    type=click.IntRange(0),
    default=WARM_S,
    help="Seconds at a tenth of the rate before, which are not measured.",
)
@option("--brokers", type=click.IntRange(3), default=50)
@option("--seed", type=click.IntRange(0), default=1)
@click.option("--processes", type=click.IntRange(1), default=4, help="To write the log with.")
@option("--master", default="local[*]", help="Spark's.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    rate: int,
    seconds: int,
    warm_s: int,
    brokers: int,
    seed: int,
    processes: int,
    master: str,
    as_json: bool,
) -> None:
    """Land records at a steady rate and measure when they are in the tables."""
    with tempfile.TemporaryDirectory(prefix="federator-live-") as folder:
        log = Path(folder, "log")
        log.mkdir()
        records = rate * seconds + warm_records(rate, warm_s)
        write(Order(brokers, records, seed, log), processes=processes)
        options = ("--master", master)
        lag = measure(log, Path(folder), rate=rate, warm_s=warm_s, options=options)
    if as_json:
        click.echo(json.dumps(asdict(lag)))
        return
    click.echo(
        f"started: the first records were in the tables {lag.start_s:.1f} s after the command; "
        f"then {lag.warm_records:,} records at a tenth of the rate"
    )
    click.echo(f"{lag.records:,} records landed at {lag.rate:,.0f} a second")
    click.echo(
        f"in the tables after {lag.behind_p50_s:.1f} s (half), {lag.behind_p95_s:.1f} s (95 %), "
        f"{lag.behind_max_s:.1f} s (all); {lag.updates} updates"
    )
