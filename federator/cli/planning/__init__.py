"""Verbs that need the extra ``planner``: where traffic, cores and containers should be."""

import click

from federator.command_line import verbs, wheel

_PLAN = {
    "solve": ("solve:solve", "Solve an instance: who carries what, and what is proven of it."),
    "generate": ("generate:generate", "Write an instance of what a federation measured."),
    "draw": ("solve:draw", "Solve an instance and draw the answer."),
}
_PLACE = {
    "delegate": ("place_delegate", "Say which filters each edge broker owns, and write its rules."),
    "cores": ("place_cores", "Compute each broker's priority as a core from the traffic."),
}


def _verbs(modules: dict[str, tuple[str, str]]) -> type[click.Group]:
    return verbs(
        {v: (f"{__name__}.{at}", about) for v, (at, about) in modules.items()},
        brought_by=wheel("planner"),
    )


@click.command(cls=_verbs(_PLAN))
def plan() -> None:
    """Plan routes under limited bandwidth: who carries what, so that most get what they want."""


@click.command(cls=_verbs(_PLACE))
def place() -> None:
    """Decide which topics live at the edge, and where cores run."""
