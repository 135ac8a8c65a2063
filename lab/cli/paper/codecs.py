"""``federator-lab paper codecs``: Figures 2 and 4 to 9 as plots and tables, and the paper's claims.

Exit code 1 when a claim does not hold in our values that is not known to differ.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click

from federator.cli.options import FOLDER, columns, json_option, option
from lab.frame.line_chart import line_chart
from lab.frame.printing import tell
from lab.frame.settings import options
from lab.papers.codecs.claims import CLAIMS, Values, by_series, estimate
from lab.papers.codecs.distance import COMPARED, Ratio, distances
from lab.papers.codecs.example import Told, placements
from lab.papers.codecs.figures import OVER_SIZE, OVER_TIME, SIZES, Setting, over_size, over_time
from lab.papers.figures import HEAD, Row, Verdict, markdown, records_of, write_figures

DIFFERS = 1

EXAMPLE = 2
FIGURES = (EXAMPLE, *OVER_TIME, *OVER_SIZE)
TITLES = {
    "resiliency": ("Resiliency", "share delivered"),
    "latency_ms": ("Latency", "ms"),
    "overhead": ("Overhead", "packets per link / 16"),
}

Table = list[tuple[str, ...]]


@click.command(name="codecs")
@click.argument("figure", required=False, type=click.Choice([str(f) for f in FIGURES]))
@click.option("--out", type=FOLDER, help="For plots and tables.")
@options(Setting)
@option("--nodes-max", type=click.IntRange(10), default=SIZES[-1], help="In Figures 7 to 9.")
@json_option
def command(
    setting: Setting, figure: str | None, out: Path | None, nodes_max: int, as_json: bool
) -> None:
    """Remake FIGURE, or all of them, ours beside the paper's claims."""
    chosen = FIGURES if figure is None else (int(figure),)
    setting = replace(setting, sizes=tuple(size for size in SIZES if size <= nodes_max))
    found = list(_computed(setting, chosen))
    values = by_series(found)
    tables: dict[str, Table] = {}
    record: dict[str, object] = {}
    if EXAMPLE in chosen:
        examples = list(placements())
        tables["Figure 2"] = _example(examples)
        record["example"] = [each._asdict() for each in examples]
    if figure is None:
        ratios = list(distances(setting))
        tables["Cost as a multiple of the exact optimum"] = _distances(ratios)
        record["distances"] = [each._asdict() for each in ratios]
    for number in (n for n in chosen if n != EXAMPLE):
        tables[_title(number)] = _figure(values, number)
    claims = [claim.row(values) for claim in CLAIMS if claim.figure in chosen]
    if claims:
        tables["Claims"] = [HEAD, *claims]
        record["claims"] = records_of(claims)
    if out is not None:
        told = "\n".join(f"## {title}\n\n{markdown(table)}" for title, table in tables.items())
        write_figures(
            out,
            found,
            plots={number: _chart(values, number) for number in chosen if number != EXAMPLE},
            pages={"tables.md": f"# Codecs: the paper's figures, remade\n\n{told}"},
        )
    lines = [
        line for title, table in tables.items() for line in (title, *columns(table, indent=2), "")
    ]
    held = Verdict.NO not in {holds for _, holds, *_ in claims}
    estimates = {n: _estimates(values, n) for n in chosen if n != EXAMPLE}
    tell(lines, {"held": held, "figures": estimates, **record}, as_json=as_json)
    if not held:
        sys.exit(DIFFERS)


def _estimates(values: Values, figure: int) -> dict[str, dict[float, dict[str, float]]]:
    """By series and x, the mean and half its confidence interval."""
    return {
        name: {x: estimate(each)._asdict() for x, each in curve.items()}
        for (number, name), curve in values.items()
        if number == figure
    }


def _computed(setting: Setting, chosen: Sequence[int]) -> Iterator[Row]:
    if any(figure in OVER_TIME for figure in chosen):
        yield from over_time(setting)
    if any(figure in OVER_SIZE for figure in chosen):
        yield from over_size(setting)


def _title(figure: int) -> str:
    title, unit = TITLES[({**OVER_TIME, **OVER_SIZE})[figure]]
    return f"Figure {figure}. {title}, {unit}"


def _example(examples: Sequence[Told]) -> Table:
    lines: Table = [("placement", "root, 1, 2, 3 add", "paper cost", "link load", "codecs opened")]
    for told in examples:
        added = " ".join(map(str, told.added))
        lines.append((told.name, added, f"{told.paper:g}", f"{told.link_load:g}", str(told.codecs)))
    return lines


def _distances(ratios: Sequence[Ratio]) -> Table:
    kinds = list(dict.fromkeys((r.nodes, r.losses, r.charge) for r in ratios))
    lines: Table = [("scheme", *(f"{n}, {losses}, {charge.value}" for n, losses, charge in kinds))]
    for scheme in COMPARED:
        cells = (estimate([r.ratio for r in ratios if r[:4] == (*kind, scheme)]) for kind in kinds)
        lines.append((scheme.value, *map(str, cells)))
    return lines


def _figure(values: Values, figure: int) -> Table:
    series = {name: curve for (number, name), curve in values.items() if number == figure}
    xs = sorted({x for curve in series.values() for x in curve})
    head = "messages" if figure in OVER_TIME else "nodes"
    lines: Table = [(head, *series)]
    lines += [(f"{x:g}", *(str(estimate(curve[x])) for curve in series.values())) for x in xs]
    return lines


def _chart(values: Values, figure: int) -> str:
    title, unit = TITLES[({**OVER_TIME, **OVER_SIZE})[figure]]
    estimates = {
        name: {x: estimate(each) for x, each in curve.items()}
        for (number, name), curve in values.items()
        if number == figure
    }
    return line_chart(
        f"Figure {figure}. {title}",
        "messages sent" if figure in OVER_TIME else "nodes",
        unit,
        {name: {x: e.mean for x, e in curve.items()} for name, curve in estimates.items()},
        halves={name: {x: e.half for x, e in curve.items()} for name, curve in estimates.items()},
        log_x=figure in OVER_SIZE,
    )
