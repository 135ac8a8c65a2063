"""``federator-lab event-log``: a large, realistic event log by the simulator's code; and over one,
``bench-live``: how far ``stream`` lags behind.
"""

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import click
from federator_analytics.errors import UsageError

from federator.cli.options import FOLDER, option
from lab.bench.live_lag import WARM_S, measure, warm_records
from lab.event_log.writing import Order, Written, write
from lab.frame.printing import fields_of, tell
from lab.frame.settings import options, setting

RECORD_BYTES = 330
"""Of a line, in the mean; compressed, a tenth of it."""

COMPRESSED = 10
DISK_SPARE = 1_000_000_000
PROCESSES_MAX = 64


@click.command("event-log")
@options(Order)
@click.option("--out", required=True, type=FOLDER, help="New or empty folder.")
@option("--processes", type=click.IntRange(1, PROCESSES_MAX), default=min(4, os.cpu_count() or 1))
@click.option("--json", "as_json", is_flag=True, help="Say what was written as JSON.")
def command(order: Order, out: Path, processes: int, as_json: bool) -> None:
    """Write what the agents of a federation would have written, as `federator collect` lands it.

    The protocol's own nodes play a few minutes in the simulated world: starts, deaths and returns,
    a cut, a new controller, both routings. Traffic follows the meshes that they build. A report
    over the log with --corrupt must say the same as one over the log without.
    """
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"--out {out}: is not empty; a new or an empty folder is wanted")
    out.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(out).free
    wanted = order.records * RECORD_BYTES // (COMPRESSED if order.compress else 1) + DISK_SPARE
    if wanted > free:
        raise UsageError(
            f"--records {order.records}: needs about {wanted >> 20:,} MiB, "
            f"{free >> 20:,} MiB are free; --gzip takes a tenth"
        )
    written = write(order, out, processes=processes)
    names = ("records", "copies", "files", "bytes")
    counted = {name: dict(sorted(getattr(written, name).items())) for name in ("damaged", "tables")}
    record = {name: getattr(written, name) for name in names} | counted
    tell(_lines(written), record, as_json=as_json)


def _lines(written: Written) -> list[str]:
    return [
        f"{written.records:,} records and {written.copies:,} copies of some,"
        f" {written.bytes / 1e9:,.2f} GB in {written.files:,} files",
        *(f"  {table:<14}{count:>14,}" for table, count in written.tables.most_common()),
        *(f"  damaged, {why}: {count:,}" for why, count in sorted(written.damaged.items())),
    ]


@dataclass(frozen=True, slots=True)
class Landing:
    """What lands, how fast, and in which Spark."""

    rate: int = setting(50_000, "Records/s.", 1)
    seconds: int = setting(60, "", 1)
    warm_s: int = setting(
        WARM_S, "Seconds at a tenth of the rate before, which are not measured.", 0
    )
    brokers: int = setting(50, "", 3)
    seed: int = setting(1, "", 0)
    processes: int = setting(4, "To write the log with.", 1)
    master: str = setting("local[*]", "Spark's.")


@click.command("bench-live")
@options(Landing)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def live(landing: Landing, as_json: bool) -> None:
    """Land records at a steady rate and measure when they are in the tables."""
    rate, warm_s = landing.rate, landing.warm_s
    with tempfile.TemporaryDirectory(prefix="federator-live-") as folder:
        log = Path(folder, "log")
        log.mkdir()
        records = rate * landing.seconds + warm_records(rate, warm_s)
        write(Order(landing.brokers, records, landing.seed), log, processes=landing.processes)
        master = ("--master", landing.master)
        lag = measure(log, Path(folder), rate=rate, warm_s=warm_s, options=master)
    lines = [
        f"started: the first records were in the tables {lag.start_s:.1f} s after the command; "
        f"then {lag.warm_records:,} records at a tenth of the rate",
        f"{lag.records:,} records landed at {lag.rate:,.0f} a second",
        f"in the tables after {lag.behind_p50_s:.1f} s (half), {lag.behind_p95_s:.1f} s (95 %), "
        f"{lag.behind_max_s:.1f} s (all); {lag.updates} updates",
    ]
    tell(lines, fields_of(lag), as_json=as_json)
