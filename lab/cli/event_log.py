"""``federator-lab event-log``: a large, realistic event log by the simulator's code."""

import json
import os
import shutil
from pathlib import Path

import click

from analytics.errors import UsageError
from federator.cli.options import FOLDER, option
from lab.event_log import landing
from lab.event_log.layout import BROKERS_MAX, BROKERS_MIN
from lab.event_log.writing import Order, write

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
    brokers: int,
    records: int,
    seed: int,
    out: Path,
    corrupt: float,
    compress: bool,
    processes: int,
    as_json: bool,
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
    wanted = records * RECORD_BYTES // (COMPRESSED if compress else 1) + DISK_SPARE
    if wanted > free:
        raise UsageError(
            f"--records {records}: needs about {wanted >> 20:,} MiB, {free >> 20:,} MiB are free;"
            " --gzip takes a tenth"
        )
    order = Order(brokers, records, seed, out, corrupt=corrupt, compress=compress)
    written = write(order, processes=processes)
    click.echo(_as_json(written) if as_json else _as_text(written))


def _as_json(written: landing.Written) -> str:
    names = ("records", "copies", "files", "bytes")
    counted = {name: dict(sorted(getattr(written, name).items())) for name in ("damaged", "tables")}
    return json.dumps({name: getattr(written, name) for name in names} | counted)


def _as_text(written: landing.Written) -> str:
    lines = [
        f"{written.records:,} records and {written.copies:,} copies of some,"
        f" {written.bytes / 1e9:,.2f} GB in {written.files:,} files",
        *(f"  {table:<14}{count:>14,}" for table, count in written.tables.most_common()),
        *(f"  damaged, {why}: {count:,}" for why, count in sorted(written.damaged.items())),
    ]
    return "\n".join(lines)
