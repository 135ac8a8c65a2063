"""``federator undrain BROKER``: maintenance is over."""

from pathlib import Path

import click

from federator.cli.agent_pages import url_option
from federator.cli.drain import order
from federator.cli.options import config_option
from federator.protocol.types import BROKER_ID_MAX, BrokerId


@click.command(name="undrain")
@click.argument("broker", type=click.IntRange(0, BROKER_ID_MAX))
@config_option
@url_option
def command(broker: int, config: Path | None, url: str | None) -> None:
    """Let the clients of BROKER come back. Nobody is moved: new clients may choose it again."""
    order(BrokerId(broker), drain=False, config=config, url=url)
    click.echo(f"broker {broker} takes clients again")
