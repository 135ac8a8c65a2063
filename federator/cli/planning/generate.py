"""``federator plan generate``: an instance of what a federation measured."""

from pathlib import Path

import click

from federator.cli.options import FILE
from federator.cli.planning.files import read_bytes, write
from federator.planner.flow import federation_file
from federator.planner.flow.instance_file import encode


@click.command()
@click.argument("kind", type=click.Choice(("federation",)))
@click.option("-o", "--output", type=FILE, help="Where to. [standard output]")
@click.option("--traffic", type=FILE, required=True, help="The traffic matrix.")
@click.option("--links", type=FILE, required=True, help="The link table.")
def generate(kind: str, output: Path | None, traffic: Path, links: Path) -> None:
    """Write an instance of KIND (`federator-lab paper generate` makes some to practise on)."""
    made = federation_file.decode(read_bytes(traffic), read_bytes(links), name=traffic.stem)
    write(output, encode(made).decode())
