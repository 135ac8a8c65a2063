"""``federator place``: which topics live at the edge, and where brokers, services and cores run.

Its verbs need what a gateway does not: they are imported when used, and say what is missing.
"""

from importlib import import_module

import click

from federator.errors import FederatorError

_VERBS = {
    "delegate": ("place_delegate", "Say which filters each edge broker owns, and write its rules."),
    "cores": ("place_cores", "Compute each broker's priority as a core from the traffic."),
    "solve": ("place_solve", "Place broker and service containers for least power."),
    "compare": ("place_compare", "Compare placement methods on random instances."),
    "paper": ("place_paper", "Remake Figures 8 to 22, ours beside the paper's claims."),
}


class ExtraMissingError(FederatorError):
    """Packages that only planning needs are not installed."""


class _PlaceVerbs(click.Group):
    """Knows the names of its verbs without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS:
            return None
        try:
            module = import_module(f"federator.cli.{_VERBS[cmd_name][0]}")
        except ModuleNotFoundError as error:
            if error.name is not None and error.name.partition(".")[0] == "federator":
                raise
            missing = f"{error.name} is not installed"
            raise ExtraMissingError(f"{missing}: run pip install federator[planner]") from None
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(verb, about) for verb, (_, about) in _VERBS.items()])


@click.command(name="place", cls=_PlaceVerbs)
def command() -> None:
    """Decide which topics live at the edge, and where brokers, services and cores run."""
