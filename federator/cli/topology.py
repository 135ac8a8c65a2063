"""``federator topology``: the federation as one agent, or all agents of a grid, see it."""

from pathlib import Path

import click

from federator.cli.agent_pages import agent_url, agents_of_grid, get, url_option
from federator.cli.drawing import DRAWINGS, merge
from federator.cli.options import config_option


@click.command(name="topology")
@config_option
@url_option
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    help="State file of `federator grid --stay`: ask every agent in it.",
)
@click.option(
    "--format", "form", type=click.Choice(sorted(DRAWINGS)), default="text", show_default=True
)
@click.option("--filter", "topic_filter", help="Draw the mesh of this filter only.")
def command(
    config: Path | None, url: str | None, state: Path | None, form: str, topic_filter: str | None
) -> None:
    """Draw the federation: brokers, links, cores, and who is whose parent.

    One agent knows its own links and parents, and every core; --state asks all.
    """
    urls = agents_of_grid(state) if state is not None else [agent_url(config, url)]
    topology = merge([get(each, "/status") for each in urls], topic_filter)
    click.echo(DRAWINGS[form](topology))
