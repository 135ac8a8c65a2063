"""The verbs of ``federator plan``."""

import click

from federator.cli.planning.compare import compare
from federator.cli.planning.generate import generate
from federator.cli.planning.solve import draw, solve
from federator.cli.planning.study import study


@click.group(name="plan")
def command() -> None:
    """Plan routes under limited bandwidth: who carries what, so that most get what they want."""


for verb in (solve, generate, compare, draw, study):
    command.add_command(verb)
