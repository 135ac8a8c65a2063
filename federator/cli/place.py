"""``federator place``: which topics live at the edge, and where brokers, services and cores run."""

import click

from federator.cli.extra_verbs import extra_verbs

_VERBS = {
    "delegate": ("place_delegate", "Say which filters each edge broker owns, and write its rules."),
    "cores": ("place_cores", "Compute each broker's priority as a core from the traffic."),
    "solve": ("place_solve", "Place broker and service containers for least power."),
    "compare": ("place_compare", "Compare placement methods on random instances."),
    "paper": ("place_paper", "Remake Figures 8 to 22, ours beside the paper's claims."),
}


@click.command(name="place", cls=extra_verbs(_VERBS))
def command() -> None:
    """Decide which topics live at the edge, and where brokers, services and cores run."""
