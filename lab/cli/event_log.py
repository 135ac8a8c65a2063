"""``federator-lab event-log``: a large, realistic event log by the simulator's code; and over one,
``bench-live``: how far ``stream`` lags behind.
"""

import json
import os
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from federator_analytics.errors import UsageError

from federator.cli.options import FOLDER, option
from lab.bench.live_lag import WARM_S, measure, warm_records
from lab.event_log.layout import BROKERS_MAX, BROKERS_MIN
from lab.event_log.writing import Order, Written, write

RECORD_BYTES = 330
"""Of a line, in the mean; compressed, a tenth of it."""

COMPRESSED = 10
DISK_SPARE = 1_000_000_000
PROCESSES_MAX = 64


@click.command("event-log")
@option("--brokers", type=click.IntRange(BROKERS_MIN, BROKERS_MAX), default=25)
@option("--records", type=click.IntRange(1), default=1_000_000, help="About so many.")
@option("--seed", type=click.IntRange(0), default=1, help="Decides everything.")
@click.option("--out", required=True, type=FOLDER, help="New or empty folder.")
@click.option(
    "--corrupt", type=click.FloatRange(0, 1), default=0.0, help="Share of damaged lines to add."
)
@click.option("--gzip", "compress", is_flag=True, help="Write .jsonl.gz.")
@option("--processes", type=click.IntRange(1, PROCESSES_MAX), default=min(4, os.cpu_count() or 1))
@click.option("--json", "as_json", is_flag=True, help="Say what was written as JSON.")
def command(
    out: Path,
    processes: int,
    as_json: bool,
    **options: Any,  # noqa: ANN401  # fields of Order by name
) -> None:
    """Write what the agents of a federation would have written, as `federator collect` lands it.

    The protocol's own nodes play a few minutes in the simulated world: starts, deaths and returns,
    a cut, a new controller, both routings. Traffic follows the meshes that they build. A report
    over the log with --corrupt must say the same as one over the log without.
    """
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"--out {out}: is not empty; a new or an empty folder is wanted")
    out.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(out).free
    order = Order(folder=out, **options)
    wanted = order.records * RECORD_BYTES // (COMPRESSED if order.compress else 1) + DISK_SPARE
    if wanted > free:
        raise UsageError(
            f"--records {order.records}: needs about {wanted >> 20:,} MiB, "
            f"{free >> 20:,} MiB are free; --gzip takes a tenth"
        )
    written = write(order, processes=processes)
    click.echo(_as_json(written) if as_json else _as_text(written))


def _as_json(written: Written) -> str:
    names = ("records", "copies", "files", "bytes")
    counted = {name: dict(sorted(getattr(written, name).items())) for name in ("damaged", "tables")}
    return json.dumps({name: getattr(written, name) for name in names} | counted)


def _as_text(written: Written) -> str:
    lines = [
        f"{written.records:,} records and {written.copies:,} copies of some,"
        f" {written.bytes / 1e9:,.2f} GB in {written.files:,} files",
        *(f"  {table:<14}{count:>14,}" for table, count in written.tables.most_common()),
        *(f"  damaged, {why}: {count:,}" for why, count in sorted(written.damaged.items())),
    ]
    return "\n".join(lines)


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
def live(
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
