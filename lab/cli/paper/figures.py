"""The files of a paper's remade figures: one table of all values, a plot of each, and pages."""

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from federator.errors import ConfigError


def write_figures(
    out: Path,
    head: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    plots: Mapping[int, str],
    pages: Mapping[str, str],
) -> None:
    """Write ``figures.csv``, ``figure-N.svg`` for each of ``plots``, and ``pages`` by file name.

    Raises ``ConfigError``: the folder ``out`` cannot be made or written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        with (out / "figures.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(head)
            writer.writerows(rows)
        for figure, plot in plots.items():
            (out / f"figure-{figure}.svg").write_text(plot, encoding="utf-8")
        for name, text in pages.items():
            (out / name).write_text(text, encoding="utf-8")
    except OSError as error:
        text = f"{out}: {error.strerror}: name a folder this user may write"
        raise ConfigError(text, exit_code=os.EX_CANTCREAT) from None


def claims_of(table: Iterable[Sequence[str]]) -> list[dict[str, str]]:
    """Lines of a table of claims, whose first is its head, as records."""
    _, *lines = table
    return [dict(zip(("figure", "holds", "paper", "ours"), line, strict=True)) for line in lines]


def markdown(table: Sequence[Sequence[str]]) -> str:
    """``table``, whose first row is its head, as Markdown."""
    head, *rest = table
    lines = [f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rest), ""])
