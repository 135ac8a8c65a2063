"""``federator-lab paper``: tables and figures of the papers, ours beside theirs."""

import click

from federator.command_line import verbs, wheel

VERBS = {
    "generate": ("flow:generate", "Write an instance to practise on, from a seed."),
    "compare": ("flow:compare", "Routing methods side by side, and Manzoni's Table 2 beside ours."),
    "study": ("flow:study", "Brokers that price their own links, over many seeds; time over size."),
    "place": ("place", "Fawwaz's Figures 8 to 22, ours beside the paper's claims."),
    "place-compare": (
        "place:compare_command",
        "Placement methods side by side on random instances.",
    ),
    "place-solve": ("place:solve_command", "Place broker and service containers for least power."),
    "codecs": ("codecs", "Figures 2 and 4 to 9 of the codec paper, ours beside its claims."),
    "codecs-solve": ("codecs_solve", "Which brokers of your own tree should add repair packets."),
}


@click.command(
    name="paper",
    cls=verbs(
        {verb: (f"lab.cli.paper.{at}", about) for verb, (at, about) in VERBS.items()},
        brought_by=wheel("planner"),
    ),
)
def command() -> None:
    """Remake the tables and figures of the papers, ours beside theirs."""
