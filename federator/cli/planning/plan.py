"""``federator plan``: routes under limited bandwidth."""

import click

from federator.command_line import verbs

VERBS = {
    "solve": ("solve:solve", "Solve an instance: who carries what, and what is proven of it."),
    "generate": (
        "generate:generate",
        "Write an instance of what a federation measured.",
    ),
    "draw": ("solve:draw", "Solve an instance and draw the answer."),
}


@click.command(
    name="plan",
    cls=verbs(
        {verb: (f"federator.cli.planning.{at}", about) for verb, (at, about) in VERBS.items()},
        extra="planner",
    ),
)
def command() -> None:
    """Plan routes under limited bandwidth: who carries what, so that most get what they want."""
