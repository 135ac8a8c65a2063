"""``federator topology``: the federation as one agent, or all agents of a grid, see it."""

import json
from pathlib import Path

import click

from federator.cli.agent_pages import agent_url, get, url_option
from federator.cli.drawing import DRAWINGS, merge
from federator.cli.options import config_option
from federator.errors import ConfigError

NO_INPUT = 66


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
    urls = _agents_in(state) if state is not None else [agent_url(config, url)]
    topology = merge([get(each, "/status") for each in urls], topic_filter)
    click.echo(DRAWINGS[form](topology))


def _agents_in(state: Path) -> list[str]:
    try:
        brokers = json.loads(state.read_text("utf-8"))["brokers"]
        return [_as_url(broker["agent_http"]) for broker in brokers]
    except OSError as error:
        reason = (error.strerror or "").lower()
        text = f"{state}: {reason}: name the file given to `federator grid --state`"
        raise ConfigError(text, exit_code=NO_INPUT) from None
    except (ValueError, KeyError, TypeError):
        text = f"{state}: not a state file of a grid: write it with `federator grid --state`"
        raise ConfigError(text, exit_code=78) from None


def _as_url(place: str | int) -> str:
    if isinstance(place, int):
        return f"http://127.0.0.1:{place}"
    return place if place.startswith("http://") else f"http://{place}"
