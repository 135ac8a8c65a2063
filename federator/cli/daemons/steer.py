"""``federator steer``: fit heavy flows to links, until SIGTERM or SIGINT."""

import os
from functools import partial
from pathlib import Path

import click

from federator.cli.daemons.all_brokers import (
    broker_option,
    check_option,
    file_or_usual,
    only_option,
    require_broker,
    usable,
)
from federator.cli.options import FILE, config_file
from federator.command_line import imported, wheel
from federator.config.reading import load_steerer
from federator.config.reload import reloaded
from federator.runtime.process import logs
from federator.runtime.process.reloading import Source

DEFAULT_CONFIG = Path("/etc/federator/steer.toml")


@click.command(name="steer")
@broker_option
@config_file(f"$FEDERATOR_STEERER_CONFIG or {DEFAULT_CONFIG}, if it exists")
@only_option
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
@check_option
def command(
    brokers: tuple[str, ...],
    config: Path | None,
    only: bool,
    dry: bool,
    once: bool,
    write_instance: Path | None,
    check: bool,
) -> None:
    """Give the heavy flows trees of their own, so that no link is too full, and place cores.

    With [keep] in its configuration it has topics stay at the edge that only a hub collects.

    It may be killed and started again at any moment: plans expire, and what has none goes the
    ordinary way. Of several steerers one steers and the others wait. SIGTERM takes the plans back;
    SIGHUP reads the configuration again: log.level changes at once, and the log names what takes a
    restart.
    """
    config = file_or_usual(config, "FEDERATOR_STEERER_CONFIG", DEFAULT_CONFIG)
    require_broker(config, brokers)
    app = imported("federator.steerer.app", wheel("planner"))
    read = partial(load_steerer, config, os.environ, brokers=brokers, only=only)
    settings = read()
    if check:
        click.echo(usable(settings))
        return
    logs.configure(settings.log)
    app.serve(
        settings,
        Source(read, reloaded, logs.set_level),
        dry=dry,
        once=once,
        instance_file=write_instance,
        say=click.echo,
    )
