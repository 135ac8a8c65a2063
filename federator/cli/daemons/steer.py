"""``federator steer``: fit heavy flows to links, until SIGTERM or SIGINT."""

import os
from functools import partial
from pathlib import Path

import click

from federator.cli.daemons import logs
from federator.cli.options import config_file
from federator.command_line import imported
from federator.config.reading import load_steerer
from federator.runtime.process.reloading import Source

DEFAULT_CONFIG = Path("/etc/federator/steer.toml")


@click.command(name="steer")
@click.option(
    "--broker",
    "brokers",
    multiple=True,
    metavar="URL",
    help="A broker to begin with, mqtt://HOST[:PORT] or mqtts://...; any one finds the others. May "
    "be given more than once.",
)
@config_file(f"$FEDERATOR_STEERER_CONFIG or {DEFAULT_CONFIG}, if it exists")
@click.option("--only", is_flag=True, help="Keep to the brokers given; look for no others.")
@click.option(
    "--dry-run", "dry", is_flag=True, help="Move nothing: print what would move, and why."
)
@click.option(
    "--once",
    is_flag=True,
    help="Decide once, print that, and leave; the plan holds for ten minutes.",
)
@click.option("--check", is_flag=True, help="Read the configuration and stop there.")
def command(
    brokers: tuple[str, ...], config: Path | None, only: bool, dry: bool, once: bool, check: bool
) -> None:
    """Give the heavy flows trees of their own, so that no link is too full.

    It may be killed and started again at any moment: plans expire, and what has none goes the
    ordinary way. Of several steerers one steers and the others wait. SIGTERM takes the plans back;
    SIGHUP reads the configuration again: log.level changes at once, and the log names what takes a
    restart.
    """
    if config is None:
        usual = DEFAULT_CONFIG if DEFAULT_CONFIG.exists() else None
        config = Path(named) if (named := os.environ.get("FEDERATOR_STEERER_CONFIG")) else usual
    if config is None and not brokers and "FEDERATOR_BROKERS" not in os.environ:
        raise click.UsageError("--broker URL is missing, and there is no configuration")
    app = imported("federator.steerer.app", "planner")
    read = partial(load_steerer, config, os.environ, brokers=brokers, only=only)
    settings = read()
    if check:
        named_brokers = ", ".join(broker.url for broker in settings.brokers)
        click.echo(f"from {named_brokers}: the configuration can be used")
        return
    logs.configure(settings.log)
    app.serve(settings, Source(read, logs.set_level), dry=dry, once=once, say=click.echo)
