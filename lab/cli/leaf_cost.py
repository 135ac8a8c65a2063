"""``federator-lab leaf-cost``: a leaf pays for what it wants, not for the size of the world."""

from pathlib import Path

import click

from federator.cli.options import FOLDER, json_option, option
from lab.cli.common import in_folder, judged
from lab.leaves.cost import Cost, Size, cost, flat, table

MEMORY_BYTES_MAX = 5_000_000
TRAFFIC_MAX = 1.2


def _sizes(context: click.Context, option: click.Parameter, text: str) -> list[Size]:
    try:
        return [Size(*map(int, each.split(":"))) for each in text.split(",")]
    except (TypeError, ValueError):
        what = f"{text!r}: brokers and filters wanted, like 10:100,10000:1000000"
        raise click.BadParameter(what, context, option) from None


@click.command(name="leaf-cost")
@click.option(
    "--world",
    "sizes",
    callback=_sizes,
    default="10:100,10000:1000000",
    help="Brokers and filters elsewhere, in turn.",
)
@option(
    "--seconds",
    type=click.FloatRange(1, 86_400),
    default=120.0,
    help="Of each measurement; whole minutes.",
)
@option(
    "--changes",
    "changes_per_s",
    type=click.FloatRange(0, 20),
    default=1.0,
    help="Times a second that a client elsewhere wants another filter, in the second one.",
)
@click.option("--keep", type=FOLDER, help="Keep configurations and logs in this folder.")
@json_option
def command(
    sizes: list[Size], seconds: float, changes_per_s: float, keep: Path | None, as_json: bool
) -> int:
    """Run a hub with a leaf beside simulated worlds, and read what the leaf's agent pays.

    The hub's neighbour is a process that announces, with the product's own nodes, what so many
    brokers want: each 100 of them by one hub, within its bound.

    Exits 0 when the last world costs at most 5 MB more or less of memory than the first, 1.2 times
    the bytes per second, or as much less, while nothing changes, and at most 1.2 times while
    something does; 1 otherwise.
    """

    async def all_of(folder: Path) -> list[Cost]:
        return [
            await cost(
                folder / str(each.brokers), each, changes_per_s=changes_per_s, seconds=seconds
            )
            for each in sizes
        ]

    ended = in_folder(all_of, keep, verb="leaf-cost")
    held = flat(ended, memory_bytes_max=MEMORY_BYTES_MAX, traffic_max=TRAFFIC_MAX)
    lines = [*table(ended), "flat" if held else "NOT flat"]
    return judged(lines, {"costs": ended}, held=held, as_json=as_json)
