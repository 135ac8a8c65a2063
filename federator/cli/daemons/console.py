"""``federator console``: one live page for the operators of a federation."""

import os
from functools import partial
from pathlib import Path

import click

from federator.cli.daemons.frame import begins_at, check_or_serve, following_options, require_broker
from federator.command_line import imported, wheel
from federator.config.reading import load_console


@click.command(name="console")
@following_options("console.toml", "FEDERATOR_CONSOLE_CONFIG")
@click.option(
    "--add-operator",
    metavar="NAME",
    help="Ask for a password, and print the line for the file in operators.file.",
)
def command(
    brokers: tuple[str, ...],
    config: Path | None,
    only: bool,
    check: bool,
    add_operator: str | None,
) -> None:
    """Show a whole federation live on one page: its map, topics, failover and events.

    Given any one broker it finds the others. All visitors of the page may look; signed-in operators
    may drain brokers. SIGHUP reads the configuration again: log.level changes at once, and the log
    names what takes a restart.
    """
    if add_operator is not None:
        click.echo(new_operator(add_operator))
        return
    require_broker(config, brokers)
    app = imported("federator.console.app", wheel("console"))
    read = partial(load_console, config, os.environ, brokers=brokers, only=only)
    check_or_serve(read, app.serve, check=check, about=begins_at)


def new_operator(name: str) -> str:
    """The line for ``name`` and the password that is typed."""
    operators = imported("federator.console.operators", wheel("console"))
    if not operators.NAME.fullmatch(name):
        raise click.BadParameter("1 to 64 of A-Z a-z 0-9 _ . @ - wanted", param_hint="NAME")
    password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    if not operators.PASSWORD_MIN <= len(password) <= operators.PASSWORD_MAX:
        what = f"{operators.PASSWORD_MIN} to {operators.PASSWORD_MAX} characters wanted"
        raise click.BadParameter(what, param_hint="password")
    return f"{name}:{operators.hashed(password)}"
