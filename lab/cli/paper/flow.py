"""``federator-lab paper generate``: instances to practise on; ``compare``: methods side by side,
and the paper's Table 2 beside ours; ``study``: the distributed version, and time over size.
"""

import math
import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click

from federator.cli.options import FILE, columns, json_option, option
from federator.cli.planning.files import read, write
from federator.cli.planning.watching import interruption, watch
from federator.planner.flow.instance import Instance
from federator.planner.flow.instance_file import NODES_MAX, REQUESTS_MAX, encode
from federator.planner.lagrangian import heuristic as lagrangian
from lab.frame.printing import fields_of, tell
from lab.frame.settings import options, setting
from lab.papers.flow import generators, studies
from lab.papers.flow.comparison import METHODS, TABLE_2, Run, Summary, run_of, summarise
from lab.papers.pricing.world import Conditions

SIZES = {size.name: size for size in generators.TABLE_1}
KINDS = ("table1", "grid", "geometric", "topology")


@dataclass(frozen=True, slots=True)
class Generated:
    """What an instance is made of, by its kind."""

    seed: int = setting(0, "", 0, 2**31 - 1)
    size: str = setting("case3", "Of table1.", among=[*SIZES])
    rows: int = setting(5, "Of grid.", 2, 1_000)
    cols: int = setting(5, "Of grid.", 2, 1_000)
    nodes: int = setting(50, "Of geometric.", 2, NODES_MAX)
    name: str = setting("sndlib/germany50", "Of topology.")
    topics: int = setting(40, "", 1, REQUESTS_MAX)
    fan_out: int = setting(4, "Most subscribers of a topic.", 1)
    tightness: float | None = setting(
        None,
        "Capacity as a share of what shortest paths would need. [table1 0.75, else 0.9]",
        least=0.05,
        most=10,
    )


@click.command("generate")
@click.argument("kind", type=click.Choice(KINDS))
@click.option("-o", "--output", type=FILE, help="Where to. [standard output]")
@options(Generated)
def generate(asked: Generated, kind: str, output: Path | None) -> None:
    """Write an instance of KIND: the same seed gives the same instance."""
    tight = asked.tightness or (0.75 if kind == "table1" else 0.9)
    drawn: dict[str, Any] = {"seed": asked.seed, "tightness": tight}
    demand = {"topics": asked.topics, "fan_out": asked.fan_out}
    match kind:
        case "table1":
            made = generators.table1(SIZES[asked.size], **drawn)
        case "grid":
            made = generators.grid(asked.rows, asked.cols, **drawn, **demand)
        case "geometric":
            made = generators.geometric(asked.nodes, **drawn, **demand)
        case _:
            made = generators.real_network(asked.name, **drawn, **demand)
    write(output, encode(made).decode())


PAPER_METHODS = ("exact", "lagrangian", "annealing", "greedy", "split")


@dataclass(frozen=True, slots=True)
class Compared:
    """What is compared, and how long."""

    paper: bool = setting(default=False, about="The six sizes of the paper's Table 1.")
    seeds: int = setting(10, "Per size, with --paper.", 1)
    sizes: tuple[str, ...] = setting(
        (),
        "Only this size, with --paper; more than once for more.",
        option="--size",
        among=[*SIZES],
    )
    methods: tuple[str, ...] = setting(
        (),
        f"Only this method; more than once for more. [{', '.join(PAPER_METHODS)}]",
        option="--method",
        among=[*METHODS],
    )
    seed: int = setting(0, "Of methods.", 0, 2**31 - 1)
    time_limit_s: float = setting(
        600.0, "Seconds for one method on one instance.", 0.01, option="--time-limit"
    )


@click.command("compare")
@click.argument("instances", nargs=-1, type=FILE)
@options(Compared)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per run, and a summary.")
def compare(asked: Compared, instances: tuple[Path, ...], as_json: bool) -> int:
    """Time, cost, bound, gap, proofs and unmet requests of several methods."""
    if asked.paper == bool(instances):
        raise click.UsageError("either INSTANCES or --paper wanted")
    problems = _paper(asked) if asked.paper else ((str(p), read(p)) for p in instances)
    sizes = len(asked.sizes) or len(generators.TABLE_1)
    total = sizes * asked.seeds if asked.paper else len(instances)
    runs: list[Run] = []
    with interruption() as noted:
        for done, (group, problem) in enumerate(problems):
            for method in asked.methods or PAPER_METHODS:
                if noted.happened:
                    break
                what = f"{done + 1}/{total} {problem.name or group} {method}"
                with watch(
                    what, time_limit_s=asked.time_limit_s, noted=noted, quiet=as_json
                ) as watching:
                    began = time.perf_counter()
                    outcome = METHODS[method](problem, seed=asked.seed, watch=watching)
                    seconds = time.perf_counter() - began
                runs.append(run_of(group, problem.name or group, method, seconds, outcome))
                if as_json:
                    tell((), fields_of(runs[-1]), as_json=True)
    summaries = summarise(runs)
    tell(_table(summaries, paper=asked.paper), summaries, as_json=as_json)
    return noted.exit_code


def _paper(asked: Compared) -> Iterator[tuple[str, Instance]]:
    for size in generators.TABLE_1:
        if size.name in (asked.sizes or SIZES):
            for seed in range(asked.seeds):
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


NEAR = 0.05
GROWTH = ((1_250, 125), (2_500, 250), (5_000, 500), (10_000, 1_000))
"""Nodes and topics: each has some four times the work of the one before."""


@click.group("study")
def study() -> None:
    """Long measurements: ``distributed`` over many seeds, ``growth`` of time with size."""


@study.command()
@option("--first-seed", type=click.IntRange(0), default=0)
@option("--seeds", type=click.IntRange(1, 1_000), default=20)
@options(Conditions)
@json_option
def distributed(conditions: Conditions, first_seed: int, seeds: int, as_json: bool) -> int:
    """How far brokers that price their own links end above the centralised answer."""
    runs: list[studies.Settled] = []
    with interruption() as noted:
        for seed in range(first_seed, first_seed + seeds):
            what = f"seed {seed}"
            with watch(what, time_limit_s=math.inf, noted=noted, quiet=False) as watching:
                settled = studies.settle(seed, conditions, watch=watching)
            if settled is None:
                break
            runs.append(settled)
    head = ["seed", "central", "cost", "above %", "unmet", "overload %", "late moves"]
    rows: list[list[object]] = [[*head, "late swing %", "late overload %"]]
    rows += [_row(run) for run in runs]
    lines = columns(rows)
    record: dict[str, object] = {"runs": runs}
    if runs:
        above = [run.excess for run in runs]
        near = sum(each <= NEAR for each in above)
        middle, worst = median(above), max(above)
        still = sum(not run.oscillates for run in runs)
        lines += [
            f"within {NEAR:.0%}: {near} of {len(runs)}; median {middle:.2%}, worst {worst:.2%}",
            f"no oscillation in {studies.LATE_ROUNDS} rounds more: {still} of {len(runs)}",
        ]
        record |= {"excess_median": middle, "excess_max": worst, "near": near, "still": still}
    tell(lines, record, as_json=as_json)
    return noted.exit_code


def _row(run: studies.Settled) -> list[object]:
    begin = [run.seed, f"{run.central:g}", f"{run.cost:g}", f"{run.excess:.2%}", run.unmet]
    late = [f"{share:.1%}" for share in (run.late_swing, run.late_overload)]
    return [*begin, f"{run.overload:.1%}", run.late_moves, *late]


@study.command()
@option("--tightness", type=click.FloatRange(0.05, 10), default=0.95)
@option("--seed", type=click.IntRange(0, 2**31 - 1), default=1)
@option("--sizes", type=click.IntRange(2, len(GROWTH)), default=len(GROWTH))
@json_option
def growth(tightness: float, seed: int, sizes: int, as_json: bool) -> int:
    """Processor time of the Lagrangian method, without limit, and its power of n log n x topics."""
    head = ["nodes", "topics", "CPU s", "per work", "gap %", "unmet", "peak MiB"]
    rows: list[list[object]] = [list(head)]
    found: list[dict[str, float]] = []
    amounts: list[float] = []
    seconds: list[float] = []
    with interruption() as noted:
        for nodes, topics in GROWTH[:sizes]:
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
            size = {"nodes": nodes, "topics": topics, "processor_s": spent, "per_work": relative}
            found.append({**size, "gap": outcome.gap, "unmet": outcome.unmet, "peak_mib": peak})
    lines = columns(rows)
    record: dict[str, object] = {"sizes": found}
    if len(amounts) > 1:
        record["power"] = power = studies.exponent(amounts, seconds)
        lines.append(f"time grows as (n log n x topics) to the power {power:.2f}")
    tell(lines, record, as_json=as_json)
    return noted.exit_code
