"""``federator-lab paper generate``: instances to practise on, from a seed."""

from pathlib import Path

import click

from federator.cli.options import FILE, option
from federator.cli.planning.files import write
from federator.planner.flow.instance_file import NODES_MAX, REQUESTS_MAX, encode
from lab.papers.flow import generators

SIZES = {size.name: size for size in generators.TABLE_1}
KINDS = ("table1", "grid", "geometric", "topology")


@click.command("generate")
@click.argument("kind", type=click.Choice(KINDS))
@click.option("-o", "--output", type=FILE, help="Where to. [standard output]")
@option("--seed", type=click.IntRange(0, 2**31 - 1), default=0)
@click.option("--size", type=click.Choice(list(SIZES)), default="case3", help="Of table1. [case3]")
@click.option("--rows", type=click.IntRange(2, 1_000), default=5, help="Of grid. [5]")
@click.option("--cols", type=click.IntRange(2, 1_000), default=5, help="Of grid. [5]")
@click.option("--nodes", type=click.IntRange(2, NODES_MAX), default=50, help="Of geometric. [50]")
@click.option("--name", default="sndlib/germany50", help="Of topology. [sndlib/germany50]")
@option("--topics", type=click.IntRange(1, REQUESTS_MAX), default=40)
@option("--fan-out", type=click.IntRange(1), default=4, help="Most subscribers of a topic.")
@click.option(
    "--tightness",
    type=click.FloatRange(0.05, 10),
    default=None,
    help="Capacity as a share of what shortest paths would need. [table1 0.75, else 0.9]",
)
def command(
    kind: str,
    output: Path | None,
    seed: int,
    size: str,
    rows: int,
    cols: int,
    nodes: int,
    name: str,
    tightness: float | None,
    **demand: int,
) -> None:
    """Write an instance of KIND: the same seed gives the same instance."""
    tight = tightness or (0.75 if kind == "table1" else 0.9)
    match kind:
        case "table1":
            made = generators.table1(SIZES[size], seed=seed, tightness=tight)
        case "grid":
            made = generators.grid(rows, cols, seed=seed, tightness=tight, **demand)
        case "geometric":
            made = generators.geometric(nodes, seed=seed, tightness=tight, **demand)
        case _:
            made = generators.real_network(name, seed=seed, tightness=tight, **demand)
    write(output, encode(made).decode())
