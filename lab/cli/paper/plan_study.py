"""``federator-lab paper study``: the distributed version over many seeds; time against size."""

import math
import resource
import time
from statistics import median

import click

from federator.cli.options import columns, option
from federator.cli.planning.watching import interruption, watch
from federator.planner.lagrangian import heuristic as lagrangian
from lab.papers.flow import generators, studies
from lab.papers.pricing.world import Conditions

NEAR = 0.05
SIZES = ((1_250, 125), (2_500, 250), (5_000, 500), (10_000, 1_000))
"""Nodes and topics: each has some four times the work of the one before."""


@click.group("study")
def command() -> None:
    """Long measurements: ``distributed`` over many seeds, ``growth`` of time with size."""


@command.command()
@option("--first-seed", type=click.IntRange(0), default=0)
@option("--seeds", type=click.IntRange(1, 1_000), default=20)
@option("--noise", type=click.FloatRange(0, 0.5), default=0.0)
@option("--rounds", type=click.IntRange(20, 1_000), default=100)
def distributed(first_seed: int, seeds: int, noise: float, rounds: int) -> int:
    """How far brokers that price their own links end above the centralised answer."""
    runs: list[studies.Settled] = []
    with interruption() as noted:
        for seed in range(first_seed, first_seed + seeds):
            what = f"seed {seed}"
            with watch(what, time_limit_s=math.inf, noted=noted, quiet=False) as watching:
                conditions = Conditions(rounds=rounds, noise=noise)
                settled = studies.settle(seed, conditions, watch=watching)
            if settled is None:
                break
            runs.append(settled)
    head = ["seed", "central", "cost", "above %", "unmet", "overload %", "late moves"]
    rows: list[list[object]] = [[*head, "late swing %", "late overload %"]]
    rows += [_row(run) for run in runs]
    click.echo("\n".join(columns(rows)))
    if runs:
        above = [run.excess for run in runs]
        near = sum(each <= NEAR for each in above)
        ends = f"median {median(above):.2%}, worst {max(above):.2%}"
        click.echo(f"within {NEAR:.0%}: {near} of {len(runs)}; {ends}")
        still = sum(not run.oscillates for run in runs)
        click.echo(f"no oscillation in {studies.LATE_ROUNDS} rounds more: {still} of {len(runs)}")
    return noted.exit_code


def _row(run: studies.Settled) -> list[object]:
    begin = [run.seed, f"{run.central:g}", f"{run.cost:g}", f"{run.excess:.2%}", run.unmet]
    late = [f"{share:.1%}" for share in (run.late_swing, run.late_overload)]
    return [*begin, f"{run.overload:.1%}", run.late_moves, *late]


@command.command()
@option("--tightness", type=click.FloatRange(0.05, 10), default=0.95)
@option("--seed", type=click.IntRange(0, 2**31 - 1), default=1)
@option("--sizes", type=click.IntRange(2, len(SIZES)), default=len(SIZES))
def growth(tightness: float, seed: int, sizes: int) -> int:
    """Processor time of the Lagrangian method, without limit, and its power of n log n x topics."""
    head = ["nodes", "topics", "CPU s", "per work", "gap %", "unmet", "peak MiB"]
    rows: list[list[object]] = [list(head)]
    amounts: list[float] = []
    seconds: list[float] = []
    with interruption() as noted:
        for nodes, topics in SIZES[:sizes]:
            what = f"{nodes} nodes, {topics} topics"
            with watch(what, time_limit_s=math.inf, noted=noted, quiet=False) as watching:
                problem = generators.geometric(
                    nodes, topics=topics, fan_out=5, seed=seed, tightness=tightness
                )
                began = time.process_time()
                outcome = lagrangian.solve(problem, effort=lagrangian.LARGE, watch=watching)
                spent = time.process_time() - began
            if noted.happened:
                break
            amounts.append(studies.work(nodes, topics))
            seconds.append(spent)
            relative = spent / amounts[-1] * amounts[0] / seconds[0]
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            row = [nodes, topics, f"{spent:.1f}", f"{relative:.2f}", f"{outcome.gap:.2%}"]
            rows.append([*row, outcome.unmet, peak])
    click.echo("\n".join(columns(rows)))
    if len(amounts) > 1:
        power = studies.exponent(amounts, seconds)
        click.echo(f"time grows as (n log n x topics) to the power {power:.2f}")
    return noted.exit_code
