"""``federator-lab leaf-cost``: a leaf pays for what it wants, not for the size of the world."""

import signal
import sys
from pathlib import Path

import click
import structlog
import uvloop

from federator.cli.options import FOLDER, option
from lab.cli.common import folder_for, numbers, until_stopped
from lab.leaves.cost import Cost, cost, flat, table

FAILED = 1
MEMORY_BYTES_MAX = 5_000_000
TRAFFIC_MAX = 1.2


@click.command(name="leaf-cost")
@click.option(
    "--filters", "worlds", callback=numbers, default="100,100000", help="Wanted elsewhere, in turn."
)
@option("--seconds", type=click.FloatRange(1, 86_400), default=60.0, help="Measured in each.")
@option(
    "--changes",
    "changes_per_s",
    type=click.FloatRange(0, 1_000),
    default=2.0,
    help="Filters that are wanted elsewhere more or less, per second.",
)
@click.option("--keep", type=FOLDER, help="Keep configurations and logs in this folder.")
def command(
    worlds: tuple[int, ...], seconds: float, changes_per_s: float, keep: Path | None
) -> int:
    """Run a hub with a leaf beside worlds of several sizes, and read what the leaf's agent pays.

    Exits 0 when the last world costs at most 5 MB more of memory and 1.2 times the bytes per second
    of the first; 1 otherwise.
    """
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))

    async def all_of(folder: Path) -> list[Cost]:
        costs = []
        for filters in worlds:
            place = folder / str(filters)
            costs.append(
                await cost(place, filters=filters, changes_per_s=changes_per_s, seconds=seconds)
            )
        return costs

    with folder_for(keep, verb="leaf-cost") as folder:
        ended = uvloop.run(until_stopped(all_of(folder), name="leaf-cost"))
    if isinstance(ended, signal.Signals):
        return 128 + ended
    held = flat(ended, memory_bytes_max=MEMORY_BYTES_MAX, traffic_max=TRAFFIC_MAX)
    click.echo("\n".join([*table(ended), "flat" if held else "NOT flat"]))
    return 0 if held else FAILED
