"""``federator topology``: the federation as one agent, or all agents of a grid, see it."""

import json
from pathlib import Path

import click

from federator.cli.agent_pages import agent_url, agents_of_grid, get, url_option
from federator.cli.observe.drawing import DRAWINGS, add_told, merge
from federator.cli.observe.what_if import Loss, as_document, as_lines, judge
from federator.cli.options import PLACE, config_option, option

BREAKS = 1


@click.command(name="topology")
@config_option
@url_option
@click.option(
    "--state", type=PLACE, help="State file of `federator-lab grid --stay`: ask every agent in it."
)
@option("--format", "form", type=click.Choice(sorted(DRAWINGS)), default="text")
@click.option("--filter", "topic_filter", help="Draw the mesh of this filter only.")
@click.option(
    "--what-if",
    "losses",
    multiple=True,
    metavar="remove=ID[,ID] | cut=ID-ID[,ID-ID]",
    help="Say instead what would break without these brokers or links; exit code 1 if it would.",
)
@click.option("--json", "as_json", is_flag=True, help="As --format json.")
def command(
    config: Path | None,
    url: str | None,
    state: Path | None,
    form: str,
    topic_filter: str | None,
    losses: tuple[str, ...],
    as_json: bool,
) -> int:
    """Draw the federation: brokers, links, cores, and who is whose parent.

    One agent knows its own links and parents, every core, and what others tell of their links;
    --state asks all.
    """
    loss = Loss.parse(losses)
    urls = agents_of_grid(state) if state is not None else [agent_url(config, url)]
    if losses:
        outcome = judge(get(urls[0], "/topology"), loss)
        click.echo(json.dumps(as_document(outcome)) if as_json else "\n".join(as_lines(outcome)))
        return BREAKS if len(outcome.then.parts) > len(outcome.now.parts) else 0
    topology = merge([get(each, "/status") for each in urls], topic_filter)
    if topic_filter is None:
        add_told(topology, get(urls[0], "/topology"))
    click.echo(DRAWINGS["json" if as_json else form](topology))
    return 0
