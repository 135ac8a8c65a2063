"""Verbs that need the extra ``planner``: routes under limited bandwidth."""

import click

from federator.command_line import verbs, wheel

_PLAN = {
    "solve": (
        f"{__name__}.solve:solve",
        "Solve an instance: who carries what, and what is proven of it.",
    ),
    "generate": (
        f"{__name__}.generate:generate",
        "Write an instance of what a federation measured.",
    ),
    "draw": (f"{__name__}.solve:draw", "Solve an instance and draw the answer."),
}


@click.command(cls=verbs(_PLAN, brought_by=wheel("planner")))
def plan() -> None:
    """Plan routes under limited bandwidth: so that most requests are met."""
