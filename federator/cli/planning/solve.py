"""``federator plan solve`` and ``federator plan draw``."""

import json
import math
import time
from pathlib import Path
from typing import Any

import click

from federator.cli.options import FILE, columns, option
from federator.cli.planning.files import read, write
from federator.cli.planning.watching import interruption, watch
from federator.planner.flow.drawing import copies, idle, svg
from federator.planner.flow.instance import Instance
from federator.planner.flow.outcome import Outcome
from federator.planner.lagrangian import heuristic as lagrangian
from federator.planner.lagrangian.steps import Rule
from federator.planner.methods import SOLVERS, Method, solve_by_arcs

TIME_LIMIT_S = 600.0


_method = option("--method", type=click.Choice([m.value for m in Method]), default="lagrangian")
_seed = option("--seed", type=click.IntRange(0, 2**31 - 1), default=0)
_seconds = click.FloatRange(0.01)
_time_limit = option(
    "--time-limit", "time_limit_s", type=_seconds, default=TIME_LIMIT_S, help="Seconds."
)


@click.command()
@click.argument("instance", type=FILE)
@_method
@_seed
@_time_limit
@option(
    "--steps",
    type=click.Choice([r.value for r in Rule]),
    default="polyak",
    help="How prices move (lagrangian).",
)
@click.option("--duplications-max", type=click.IntRange(1), help="Copies one broker may send (f2).")
@click.option("--draw", "picture", type=FILE, help="Write the answer as SVG too.")
@click.option("--json", "as_json", is_flag=True, help="The whole answer as JSON.")
def solve(
    instance: Path,
    method: str,
    seed: int,
    time_limit_s: float,
    steps: str,
    duplications_max: int | None,
    picture: Path | None,
    as_json: bool,
) -> int:
    """Solve INSTANCE. Ctrl-C gives the best so far, with what is proven about it."""
    problem = read(instance)
    with (
        interruption() as noted,
        watch(method, time_limit_s=time_limit_s, noted=noted, quiet=as_json) as watching,
    ):
        how: dict[str, Any] = {"seed": seed, "watch": watching}
        match Method(method):
            case Method.LAGRANGIAN:
                outcome = lagrangian.solve(problem, rule=Rule(steps), **how)
            case Method.F2:
                outcome = solve_by_arcs(problem, duplications_max=duplications_max, **how)
            case other:
                outcome = SOLVERS[other](problem, **how)
        seconds = time.monotonic() - watching.started_s
    if picture is not None:
        write(picture, svg(problem, outcome))
    if as_json:
        click.echo(json.dumps(as_dict(problem, outcome, seconds)))
    else:
        _print(problem, outcome, seconds)
    return noted.exit_code


@click.command()
@click.argument("instance", type=FILE)
@click.option("-o", "--output", type=FILE, help="SVG file. [standard output]")
@_method
@_seed
@_time_limit
def draw(instance: Path, output: Path | None, method: str, seed: int, time_limit_s: float) -> int:
    """Solve INSTANCE and draw the answer: loads, copies, idle brokers, unmet requests."""
    problem = read(instance)
    with (
        interruption() as noted,
        watch(method, time_limit_s=time_limit_s, noted=noted, quiet=False) as watching,
    ):
        outcome = SOLVERS[method](problem, seed=seed, watch=watching)
    write(output, svg(problem, outcome))
    return noted.exit_code


def as_dict(problem: Instance, outcome: Outcome, seconds: float) -> dict[str, Any]:
    """The answer by names, for machines. A bound that is not there is null."""
    bound = outcome.lower_bound
    names, topics, at = problem.names, problem.topic_names, problem.request_node
    unmet = [int(request) for request in (~outcome.account.met).nonzero()[0]]
    return {
        "instance": problem.name,
        "method": outcome.method,
        "cost": outcome.cost,
        "path_cost": outcome.account.path_cost,
        "arc_cost": outcome.account.arc_cost,
        "lower_bound": bound if math.isfinite(bound) else None,
        "gap": outcome.gap if math.isfinite(bound) else None,
        "proven": outcome.proven,
        "stopped": outcome.stopped,
        "seconds": round(seconds, 3),
        "unmet": [
            {"topic": topics[problem.request_topic[request]], "subscriber": names[at[request]]}
            for request in unmet
        ],
        "idle": [names[node] for node in idle(problem, outcome)],
        "routes": {
            topics[topic]: [[names[problem.tail[a]], names[problem.head[a]]] for a in arcs]
            for topic, arcs in enumerate(outcome.routing.arcs)
        },
    }


def _print(problem: Instance, outcome: Outcome, seconds: float) -> None:
    bound, gap = "none", "unknown"
    if math.isfinite(outcome.lower_bound):
        bound, gap = f"{outcome.lower_bound:g}", f"{outcome.gap:.2%}"
    shares = outcome.account.load / problem.capacity
    rows: list[tuple[str, object]] = [
        ("instance", problem.name or "unnamed"),
        ("method", f"{outcome.method} ({outcome.stopped}, {seconds:.2f} s)"),
        ("cost", f"{outcome.cost:g}"),
        ("bound", bound),
        ("gap", f"{gap}{', proven optimal' if outcome.proven else ''}"),
        ("unmet", f"{outcome.unmet} of {problem.requests} requests"),
        ("paths", f"{outcome.account.path_cost:g} (F1: an arc once per request)"),
        ("arcs", f"{outcome.account.arc_cost:g} (F2: an arc once per topic)"),
        ("fullest link", f"{shares.max():.0%}"),
        ("copies", f"{copies(problem, outcome).sum():.0f}"),
        ("idle brokers", len(idle(problem, outcome))),
    ]
    click.echo("\n".join(columns(rows)))
