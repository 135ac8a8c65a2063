"""``federator-lab paper place``: Figures 8 to 22 as plots and tables, ours beside the claims;
``place-solve``: one placement problem, by one method; ``place-compare``: methods side by side on
random instances of any size.

Exit code 1 of ``place`` when a claim does not hold in our figures that is not known to differ.
"""

import csv
import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.progress import track

from federator.cli.options import FOLDER, PLACE, columns, json_option, option
from federator.cli.planning.files import read_bytes
from federator.errors import ConfigError
from lab.frame.line_chart import line_chart
from lab.frame.printing import fields_of, tell
from lab.frame.settings import options
from lab.papers.figures import HEAD, Row, Verdict, markdown, records_of, write_figures
from lab.papers.placement.claims import CLAIMS, Means, means
from lab.papers.placement.exact import solve_exactly
from lab.papers.placement.hops import PlacementError
from lab.papers.placement.instance import Instance, Placement
from lab.papers.placement.instance_file import parse
from lab.papers.placement.instances import Setting, draw
from lab.papers.placement.search import search
from lab.papers.placement.simple import place_greedily, place_randomly
from lab.papers.placement.sweeps import FIGURES, points, rows

DIFFERS = 1

_DELEGATION = (
    ("Messages between external networks", "per second"),
    ("In/egress messages per distributed broker", "per second"),
    ("Subscription table", "bytes"),
)
TITLES = {
    **dict(enumerate(_DELEGATION * 3, 8)),
    17: ("Power", "mW"),
    18: ("Network usage", "Mbps x hops"),
    19: ("Power reduction against random", "share"),
    20: ("Power", "mW"),
    21: ("Placement failures", "share of runs"),
    22: ("Power reduction against random", "share"),
}
AXES = {
    "locality": "subscription locality",
    "subscribers": "subscribers per topic",
    "popularity": "popularity concentration K",
    "topics": "topics",
    "utilisation": "topic utilisation",
    "services": "services",
    "load": "workload / capacity",
}


@click.command(name="place")
@click.option("--out", type=FOLDER, required=True, help="For plots.")
@click.option(
    "--table",
    type=PLACE,
    help="Draw this table, the file or folder that the Spark job wrote, instead of computing.",
)
@option("--delegation-seeds", type=click.IntRange(1), default=20)
@option("--placement-seeds", type=click.IntRange(1), default=100)
@json_option
def command(
    out: Path, table: Path | None, delegation_seeds: int, placement_seeds: int, as_json: bool
) -> None:
    """Remake Figures 8 to 22 of the placement paper, ours beside its claims."""
    computed = (delegation_seeds, placement_seeds)
    found = _computed(*computed) if table is None else read_table(table)
    curves = means(found)
    claims = [claim.row(curves) for claim in CLAIMS]
    verdicts = [holds for _, holds, *_ in claims]
    title = "# Placement: the paper's claims, held against ours"
    pages = {"claims.md": f"{title}\n\n{markdown([HEAD, *claims])}"}
    write_figures(out, found, plots=_plots(curves), pages=pages)
    shown = columns([line[:3] for line in (HEAD, *claims)])
    count = f"{verdicts.count(Verdict.YES)} of {len(verdicts)} claims hold"
    held = Verdict.NO not in verdicts
    record = {"held": held, "claims": records_of(claims), "means": curves}
    tell([*shown, f"{count}; plots and tables are in {out}"], record, as_json=as_json)
    if not held:
        sys.exit(DIFFERS)


def read_table(path: Path) -> list[Row]:
    """Rows of one CSV file, or of a folder of parts.

    Raises ``ConfigError``: it is missing, or no such table.
    """
    parts = sorted(path.glob("*.csv")) if path.is_dir() else [path]
    found: list[Row] = []
    for part in parts:
        try:
            with part.open(newline="", encoding="utf-8") as file:
                for r in csv.DictReader(file):
                    place = int(r["figure"]), r["series"], float(r["x"]), int(r["seed"])
                    found.append(Row(*place, float(r["value"])))
        except OSError as error:
            text = f"{part}: {error.strerror}: name the table that the sweep wrote"
            raise ConfigError(text, exit_code=os.EX_NOINPUT) from None
        except (KeyError, ValueError, TypeError) as error:
            text = f"{part}: {error} : name the table that the sweep wrote"
            raise ConfigError(text, exit_code=os.EX_DATAERR) from None
    missing = sorted(
        {f for figures in FIGURES.values() for f in figures} - {r.figure for r in found}
    )
    if missing:
        text = f"{path}: no rows for figures {missing}: name the table that the sweep wrote"
        raise ConfigError(text, exit_code=os.EX_DATAERR)
    return found


def _computed(delegation_seeds: int, placement_seeds: int) -> list[Row]:
    chosen = list(points(delegation_seeds=delegation_seeds, placement_seeds=placement_seeds))
    console = Console(stderr=True)
    quiet = not console.is_terminal
    shown = track(chosen, "computing", console=console, transient=True, disable=quiet)
    return [row for point in shown for row in rows(point)]


def _plots(curves: Means) -> dict[int, str]:
    plots = {}
    for sweep, figures in FIGURES.items():
        for figure in figures:
            title, unit = TITLES[figure]
            drawn = {name: c for (f, name), c in curves.items() if f == figure}
            plots[figure] = line_chart(f"Figure {figure}. {title}", AXES[sweep], unit, drawn)
    return plots


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
def solve_command(
    problem: Path, method: str, seed: int, time_limit_s: float, as_json: bool
) -> None:
    """Place the containers of PROBLEM (JSON) for least power."""
    instance = parse(read_bytes(problem), name=str(problem))
    placement = solve(instance, method, seed=seed, time_limit_s=time_limit_s)
    if placement is None:
        raise PlacementError(f"{method} found no placement within the capacities: try exact")
    devices = placement.device_of.tolist()
    record = {
        "method": method,
        "power_mw": placement.power,
        "lower_bound_mw": placement.lower_bound,
        "topics": devices[: instance.topics],
        "services": devices[instance.topics :],
    }
    rows = [("container", "device")]
    rows += [(f"broker of topic {t}", str(d)) for t, d in enumerate(devices[: instance.topics])]
    rows += [(f"service {s}", str(d)) for s, d in enumerate(devices[instance.topics :])]
    proven = f"proven within {100 * placement.gap:.3g} %" if method in PROVING else "nothing proven"
    lines = [*columns(rows), f"power {placement.power:.6g} mW, {proven}"]
    tell(lines, record, as_json=as_json)


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


@click.command(name="place-compare")
@options(Setting)
@option("--seed", type=click.IntRange(0, SEED_MAX), default=0)
@click.option("--method", "methods", type=click.Choice(METHODS), multiple=True, help="[all]")
@option("--time-limit-s", type=click.FloatRange(0.1), default=60.0)
@json_option
def compare_command(
    setting: Setting, seed: int, methods: tuple[str, ...], time_limit_s: float, as_json: bool
) -> None:
    """Compare placement methods on a random instance."""
    setting = replace(setting, load=setting.load or 0.7)
    instance = draw(setting, seed=seed)
    containers, pairs = setting.topics + setting.services, len(instance.pairs)
    what = f"{setting.devices} devices, {containers} containers, {pairs} pairs, seed {seed}"
    click.echo(what, err=as_json)
    rows = [("method", "power mW", "at least", "gap %", "seconds")]
    tried = [
        _try(instance, method, seed=seed, time_limit_s=time_limit_s)
        for method in methods or METHODS
    ]
    rows += [each.row for each in tried]
    record = {"containers": containers, "pairs": pairs, "methods": tried, **fields_of(setting)}
    tell(columns(rows), {"seed": seed, **record}, as_json=as_json)


@dataclass(frozen=True, slots=True)
class _Tried:
    """What one method made of an instance; no power: why is in ``failure``."""

    method: str
    seconds: float
    power_mw: float | None = None
    lower_bound_mw: float | None = None  # of methods that prove one
    gap: float | None = None
    failure: str = ""

    @property
    def row(self) -> tuple[str, str, str, str, str]:
        power = self.failure if self.power_mw is None else f"{self.power_mw:.6g}"
        bound = "" if self.lower_bound_mw is None else f"{self.lower_bound_mw:.6g}"
        gap = "" if self.gap is None else f"{100 * self.gap:.3f}"
        return (self.method, power, bound, gap, f"{self.seconds:.2f}")


def _try(instance: Instance, method: str, *, seed: int, time_limit_s: float) -> _Tried:
    started_s, failure = time.perf_counter(), "nothing found"
    try:
        found = solve(instance, method, seed=seed, time_limit_s=time_limit_s)
    except PlacementError as error:
        found, failure = None, str(error)
    took_s = time.perf_counter() - started_s
    if found is None:
        return _Tried(method, took_s, failure=failure)
    if method not in PROVING:
        return _Tried(method, took_s, found.power)
    return _Tried(method, took_s, found.power, found.lower_bound, found.gap)
