"""Verbs that need the extra ``planner``: imported when used, and what is missing is said."""

from collections.abc import Mapping
from importlib import import_module

import click

from federator.errors import FederatorError


class ExtraMissingError(FederatorError):
    """Packages that only planning needs are not installed."""


def extra_verbs(verbs: Mapping[str, tuple[str, str]]) -> type[click.Group]:
    """A group that knows the names of its verbs without importing them.

    Args:
        verbs: Verb to module of this package and one line of help; the module has ``command``.
    """

    class Verbs(click.Group):
        def list_commands(self, ctx: click.Context) -> list[str]:
            return list(verbs)

        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            return _command(verbs[cmd_name][0]) if cmd_name in verbs else None

        def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
            with formatter.section("Verbs"):
                formatter.write_dl([(verb, about) for verb, (_, about) in verbs.items()])

    return Verbs


def _command(name: str) -> click.Command:
    try:
        module = import_module(f"federator.cli.{name}")
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] == "federator":
            raise
        missing = f"{error.name} is not installed"
        raise ExtraMissingError(f"{missing}: run pip install federator[planner]") from None
    command: click.Command = module.command
    return command
