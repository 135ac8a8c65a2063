"""``federator codecs``: which brokers should add repair packets where links lose."""

import click

from federator.cli.extra_verbs import extra_verbs

_VERBS = {"paper": ("codecs_paper", "Remake Figures 2 and 4 to 9, ours beside the paper's claims.")}


@click.command(name="codecs", cls=extra_verbs(_VERBS))
def command() -> None:
    """Decide which brokers add repair packets where links lose, and how many."""
