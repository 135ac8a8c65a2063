"""``federator-lab paper compare``: methods side by side, and the paper's Table 2 beside ours."""

import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from federator.cli.options import FILE, columns, option
from federator.cli.planning.files import read
from federator.cli.planning.watching import interruption, watch
from federator.planner.flow.instance import Instance
from lab.papers.flow import generators
from lab.papers.flow.comparison import METHODS, TABLE_2, Run, Summary, run_of, summarise

PAPER_METHODS = ("exact", "lagrangian", "annealing", "greedy", "split")


@click.command("compare")
@click.argument("instances", nargs=-1, type=FILE)
@click.option("--paper", is_flag=True, help="The six sizes of the paper's Table 1.")
@click.option("--seeds", type=click.IntRange(1), default=10, help="Per size, with --paper. [10]")
@click.option(
    "--size",
    "sizes",
    multiple=True,
    type=click.Choice([s.name for s in generators.TABLE_1]),
    help="Only this size, with --paper; more than once for more.",
)
@click.option(
    "--method",
    "methods",
    multiple=True,
    type=click.Choice(list(METHODS)),
    help="Only this method; more than once for more. [exact, lagrangian, annealing, greedy, split]",
)
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, help="Of methods. [0]")
@option(
    "--time-limit",
    "time_limit_s",
    type=click.FloatRange(0.01),
    default=600.0,
    help="Seconds for one method on one instance.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per run, and a summary.")
def command(
    instances: tuple[Path, ...],
    paper: bool,
    seeds: int,
    sizes: tuple[str, ...],
    methods: tuple[str, ...],
    seed: int,
    time_limit_s: float,
    as_json: bool,
) -> int:
    """Time, cost, bound, gap, proofs and unmet requests of several methods."""
    if paper == bool(instances):
        raise click.UsageError("either INSTANCES or --paper wanted")
    chosen = methods or PAPER_METHODS
    problems = _paper(seeds, sizes) if paper else ((str(p), read(p)) for p in instances)
    total = (len(sizes) or len(generators.TABLE_1)) * seeds if paper else len(instances)
    runs: list[Run] = []
    with interruption() as noted:
        for done, (group, problem) in enumerate(problems):
            for method in chosen:
                if noted.happened:
                    break
                what = f"{done + 1}/{total} {problem.name or group} {method}"
                with watch(what, time_limit_s=time_limit_s, noted=noted, quiet=as_json) as watching:
                    began = time.perf_counter()
                    outcome = METHODS[method](problem, seed=seed, watch=watching)
                    seconds = time.perf_counter() - began
                runs.append(run_of(group, problem.name or group, method, seconds, outcome))
                if as_json:
                    click.echo(json.dumps(_finite(asdict(runs[-1]))))
    summaries = summarise(runs)
    if as_json:
        click.echo(json.dumps([asdict(summary) for summary in summaries]))
    else:
        click.echo("\n".join(_table(summaries, paper=paper)))
    return noted.exit_code


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity: null."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in values.items()
    }


def _paper(seeds: int, sizes: Sequence[str]) -> Iterator[tuple[str, Instance]]:
    for size in generators.TABLE_1:
        if not sizes or size.name in sizes:
            for seed in range(seeds):
                yield size.name, generators.table1(size, seed=seed)


def _table(summaries: Sequence[Summary], *, paper: bool) -> list[str]:
    head = ["instances", "method", "runs", "time s", "cost", "gap %", "worst %", "optimal"]
    head += ["proven", "bound held", "unmet"]
    if paper:
        head += ["paper: time s", "gap %", "optimal or proven"]
    rows: list[list[object]] = [list(head)]
    for s in summaries:
        row: list[object] = [s.group, s.method, s.runs, f"{s.seconds:.3f}", f"{s.cost:.6g}"]
        row += [_percent(s.gap_to_best), _percent(s.gap_worst)]
        row += ["-" if s.optimal is None else f"{s.optimal}/{s.runs}", f"{s.proven}/{s.runs}"]
        row += ["-" if s.bound_held is None else "yes" if s.bound_held else "NO", f"{s.unmet:.1f}"]
        rows.append(row + (_theirs(s) if paper else []))
    return columns(rows)


def _theirs(summary: Summary) -> list[object]:
    """The paper's Table 2 on the same size and method."""
    row = TABLE_2.get(summary.group)
    if row is None:
        return ["-", "-", "-"]
    if summary.method == "exact":
        return [row.exact_s, 0, "proven"]
    if summary.method == "lagrangian":
        return [row.lagrangian_s, 0, "proven" if row.lagrangian_proven else "optimal"]
    if summary.method == "annealing":
        found = ["n.a." if each is None else each for each in (row.annealing_s, row.annealing_gap)]
        return [*found, f"{row.annealing_optimal}/5"]
    return ["-", "-", "-"]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f}"
