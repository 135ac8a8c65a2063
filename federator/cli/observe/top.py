"""``federator top``: agents at work, live."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console, Group
from rich.live import Live

from federator.cli.agent_pages import agent_url, agents_of_grid, get, get_text
from federator.cli.observe.top_drawing import picture
from federator.cli.observe.top_samples import Snapshot, Watched, parse
from federator.cli.options import PLACE, config_option
from federator.errors import LinkError

AT_ONCE_MAX = 16


@click.command(name="top")
@config_option
@click.option(
    "--url", "urls", multiple=True, help="An agent's HTTP listener; several times for several."
)
@click.option(
    "--state",
    type=PLACE,
    help="State file of `federator-lab grid --stay`: watch every agent in it.",
)
@click.option("--every", type=click.FloatRange(0.2, 3_600), default=1.0, help="Seconds. [1]")
@click.option(
    "--once", is_flag=True, help="One picture, after two snapshots; so without a terminal."
)
def command(
    config: Path | None, urls: tuple[str, ...], state: Path | None, every: float, once: bool
) -> int:
    """Show agents at work, live: rates, delays, links, queues, meshes.

    One agent, that of this machine, or several that can be asked from here. Ctrl-C ends it.
    Exits 69 when, with --once, none answers.
    """
    where = list(urls) or (
        agents_of_grid(state) if state is not None else [agent_url(config, None)]
    )
    watched = [Watched(url.rstrip("/")) for url in where]
    console = Console()
    with ThreadPoolExecutor(min(AT_ONCE_MAX, len(watched))) as askers:
        refresh(watched, askers)
        if once or not sys.stdout.isatty():
            time.sleep(every)
            refresh(watched, askers)
            console.print(_picture(watched, console, height=10_000))
            if all(each.now is None for each in watched):
                raise LinkError(watched[0].trouble)
            return 0
        try:
            with Live(console=console, screen=True, auto_refresh=False) as live:
                while True:
                    live.update(_picture(watched, console, height=console.height), refresh=True)
                    time.sleep(every)
                    refresh(watched, askers)
        except KeyboardInterrupt:
            return 0


def refresh(watched: list[Watched], askers: ThreadPoolExecutor) -> None:
    """Ask all agents at once."""
    for each, found in zip(watched, askers.map(_ask, [each.url for each in watched]), strict=True):
        if isinstance(found, Snapshot):
            each.take(found)
        else:
            each.miss(found)


def _ask(url: str) -> Snapshot | str:
    try:
        samples = parse(get_text(url, "/metrics"))
        return Snapshot(time.monotonic(), get(url, "/status"), samples)
    except LinkError as error:
        return str(error)
    except ValueError as error:
        return f"{url}/metrics: not an answer of an agent: {error}"[:200]


def _picture(watched: list[Watched], console: Console, *, height: int) -> Group:
    now = datetime.now(UTC).astimezone()
    return picture(watched, now, height=height, width=console.width)
