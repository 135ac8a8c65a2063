"""Verbs that need the extra ``planner``: routes under limited bandwidth."""

import click

from federator.command_line import verbs, wheel

_PLAN = {
    "solve": ("solve:solve", "Solve an instance: who carries what, and what is proven of it."),
    "generate": ("generate:generate", "Write an instance of what a federation measured."),
    "draw": ("solve:draw", "Solve an instance and draw the answer."),
}


def _verbs(modules: dict[str, tuple[str, str]]) -> type[click.Group]:
    return verbs(
        {v: (f"{__name__}.{at}", about) for v, (at, about) in modules.items()},
        brought_by=wheel("planner"),
    )


@click.command(cls=_verbs(_PLAN))
def plan() -> None:
    """Plan routes under limited bandwidth: so that most requests are met."""
