"""``federator place``: which topics live at the edge, and where cores run."""

import click

from federator.command_line import verbs

VERBS = {
    "delegate": ("place_delegate", "Say which filters each edge broker owns, and write its rules."),
    "cores": ("place_cores", "Compute each broker's priority as a core from the traffic."),
}


@click.command(
    name="place",
    cls=verbs(
        {verb: (f"federator.cli.planning.{at}", about) for verb, (at, about) in VERBS.items()},
        extra="planner",
    ),
)
def command() -> None:
    """Decide which topics live at the edge, and where cores run."""
