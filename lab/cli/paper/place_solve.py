"""``federator-lab paper place-solve``: one placement problem, by one method."""

import json
from pathlib import Path

import click
import numpy as np

from federator.cli.options import PLACE, columns, option
from federator.cli.planning.files import read_text
from federator.planner.placement.cores import PlacementError
from lab.papers.placement.exact import solve_exactly
from lab.papers.placement.instance import Instance, Placement
from lab.papers.placement.instance_file import parse
from lab.papers.placement.search import search
from lab.papers.placement.simple import place_greedily, place_randomly

METHODS = ("search", "exact", "greedy", "random")
PROVING = ("search", "exact")
SEED_MAX = 2**31 - 1
"""What HiGHS takes."""


@click.command(name="place-solve")
@click.argument("problem", type=PLACE)
@option("--method", type=click.Choice(METHODS), default="search")
@option("--seed", type=click.IntRange(0, SEED_MAX), default=0)
@option("--time-limit-s", type=click.FloatRange(0.1), default=60.0, help="For exact.")
@click.option("--json", "as_json", is_flag=True, help="Everything as one JSON object.")
def command(problem: Path, method: str, seed: int, time_limit_s: float, as_json: bool) -> None:
    """Place the containers of PROBLEM (JSON) for least power."""
    instance = parse(read_text(problem), name=str(problem))
    placement = solve(instance, method, seed=seed, time_limit_s=time_limit_s)
    if placement is None:
        raise PlacementError(f"{method} found no placement within the capacities: try exact")
    devices = placement.device_of.tolist()
    told = {
        "method": method,
        "power_mw": placement.power,
        "lower_bound_mw": placement.lower_bound,
        "topics": devices[: instance.topics],
        "services": devices[instance.topics :],
    }
    if as_json:
        click.echo(json.dumps(told))
        return
    rows = [("container", "device")]
    rows += [(f"broker of topic {t}", str(d)) for t, d in enumerate(devices[: instance.topics])]
    rows += [(f"service {s}", str(d)) for s, d in enumerate(devices[instance.topics :])]
    click.echo("\n".join(columns(rows)))
    proven = f"proven within {100 * placement.gap:.3g} %" if method in PROVING else "nothing proven"
    click.echo(f"power {placement.power:.6g} mW, {proven}")


def solve(instance: Instance, method: str, *, seed: int, time_limit_s: float) -> Placement | None:
    """Place by one of ``METHODS``; ``None``: it found nothing, which proves nothing."""
    match method:
        case "exact":
            return solve_exactly(instance, time_limit_s=time_limit_s, seed=seed)
        case "greedy":
            return place_greedily(instance)
        case "random":
            return place_randomly(instance, np.random.default_rng(seed))
        case _:
            return search(instance, seed=seed)
