"""``federator steer``: fit heavy flows to links, until SIGTERM or SIGINT."""

import os
from functools import partial
from pathlib import Path

import click

from federator.cli.daemons.frame import begins_at, check_or_serve, following_options, require_broker
from federator.cli.options import FILE
from federator.command_line import imported, wheel
from federator.config.reading import load_steerer


@click.command(name="steer")
@following_options("steer.toml", "FEDERATOR_STEERER_CONFIG")
@click.option(
    "--dry-run", "dry", is_flag=True, help="Move nothing: print what would move, and why."
)
@click.option(
    "--once",
    is_flag=True,
    help="Decide once, print that, and leave; the plan holds for ten minutes.",
)
@click.option(
    "--write-instance",
    type=FILE,
    help="Write what is measured to this file each minute, as `federator plan` reads it.",
)
def command(
    brokers: tuple[str, ...],
    config: Path | None,
    only: bool,
    check: bool,
    dry: bool,
    once: bool,
    write_instance: Path | None,
) -> None:
    """Give the heavy flows trees of their own, so that no link is too full, and place cores.

    With [keep] in its configuration it has topics stay at the edge that only a hub collects.

    It may be killed and started again at any moment: plans expire, and what has none goes the
    ordinary way. Of several steerers one steers and the others wait. SIGTERM takes the plans back;
    SIGHUP reads the configuration again: log.level changes at once, and the log names what takes a
    restart.
    """
    require_broker(config, brokers)
    app = imported("federator.steerer.app", wheel("planner"))
    read = partial(load_steerer, config, os.environ, brokers=brokers, only=only)
    serve = partial(app.serve, dry=dry, once=once, instance_file=write_instance, say=click.echo)
    check_or_serve(read, serve, check=check, about=begins_at)
