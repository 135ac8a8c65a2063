"""``federator-lab paper place``: Figures 8 to 22 as plots and tables, ours beside the claims.

Exit code 1 when a claim does not hold in our figures that is not known to differ.
"""

import csv
import os
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.progress import track

from federator.cli.options import FOLDER, PLACE, columns, option
from federator.errors import ConfigError
from lab.cli.line_chart import line_chart
from lab.cli.paper.figures import markdown, write_figures
from lab.papers.placement.claims import CLAIMS, Means, means
from lab.papers.placement.sweeps import FIGURES, Row, points, rows

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
def command(out: Path, table: Path | None, delegation_seeds: int, placement_seeds: int) -> None:
    """Remake Figures 8 to 22 of the placement paper, ours beside its claims."""
    computed = (delegation_seeds, placement_seeds)
    found = _computed(*computed) if table is None else read_table(table)
    curves = means(found)
    verdicts = [
        "yes" if claim.check(curves) else "differs" if claim.differs else "NO" for claim in CLAIMS
    ]
    lines = [("figure", "holds", "the paper says", "ours")]
    for claim, verdict in zip(CLAIMS, verdicts, strict=True):
        why = f" ({claim.differs})" if claim.differs else ""
        lines.append((str(claim.figure), verdict, claim.text, claim.told(curves) + why))
    pages = {"claims.md": markdown(lines)}
    write_figures(out, Row._fields, found, plots=_plots(curves), pages=pages)
    click.echo("\n".join(columns([(f, h, text) for f, h, text, _ in lines])))
    held = verdicts.count("yes")
    click.echo(f"{held} of {len(verdicts)} claims hold; plots and tables are in {out}")
    if "NO" in verdicts:
        sys.exit(DIFFERS)


def read_table(path: Path) -> list[Row]:
    """Rows of one CSV file, or of a folder of parts.

    Raises:
        ConfigError: It is missing, or no such table.
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
