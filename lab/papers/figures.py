"""Figures of a paper remade: a table of values, claims of its text held against them, and files."""

import csv
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from federator.errors import ConfigError

Values = TypeVar("Values")
"""What claims are held against."""

HEAD = ("figure", "holds", "the paper says", "ours")


class Row(NamedTuple):
    """One value of a figure."""

    figure: int
    series: str
    x: float
    seed: int
    value: float


def by_series(rows: Iterable[Row]) -> dict[tuple[int, str], dict[float, list[float]]]:
    """By figure and series, and by x, ascending, the values of all seeds, ascending."""
    found: dict[tuple[int, str], dict[float, list[float]]] = {}
    rows = list(rows)
    for row in rows:
        found.setdefault((row.figure, row.series), {})
    for row in sorted(rows, key=lambda row: (row.x, row.seed)):
        found[row.figure, row.series].setdefault(row.x, []).append(row.value)
    return found


class Verdict(StrEnum):
    """Whether a claim holds."""

    YES = "yes"
    LEVEL = "level"
    DIFFERS = "differs"
    NO = "NO"


@dataclass(frozen=True)  # a generic alias sets an attribute of what it makes
class Claim(Generic[Values]):
    """A sentence of the paper."""

    figure: int
    text: str  # the paper's claim, shortened
    check: Callable[[Values], Verdict | bool]  # whether ours agree
    told: Callable[[Values], str]  # our figures
    differs: str = ""  # where our model is known not to agree: why. Empty otherwise.

    def verdict(self, values: Values) -> Verdict:
        """``check``, unless what fails is known to."""
        found = self.check(values)
        if found is Verdict.LEVEL or (found and found is not Verdict.NO):
            return found if isinstance(found, Verdict) else Verdict.YES
        return Verdict.DIFFERS if self.differs else Verdict.NO

    def row(self, values: Values) -> tuple[str, str, str, str]:
        """Its line below ``HEAD``."""
        verdict = self.verdict(values)
        why = f" ({self.differs})" if verdict is Verdict.DIFFERS else ""
        return str(self.figure), verdict.value, self.text, self.told(values) + why


def write_figures(
    out: Path, rows: Iterable[Row], *, plots: Mapping[int, str], pages: Mapping[str, str]
) -> None:
    """Write ``figures.csv``, ``figure-N.svg`` for each of ``plots``, and ``pages`` by file name.

    Raises ``ConfigError``: the folder ``out`` cannot be made or written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        with (out / "figures.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([Row._fields, *rows])
        for figure, plot in plots.items():
            (out / f"figure-{figure}.svg").write_text(plot, encoding="utf-8")
        for name, text in pages.items():
            (out / name).write_text(text, encoding="utf-8")
    except OSError as error:
        text = f"{out}: {error.strerror}: name a folder this user may write"
        raise ConfigError(text, exit_code=os.EX_CANTCREAT) from None


def records_of(lines: Iterable[Sequence[str]]) -> list[dict[str, str]]:
    """Lines below ``HEAD`` as records."""
    return [dict(zip(("figure", "holds", "paper", "ours"), line, strict=True)) for line in lines]


def markdown(table: Sequence[Sequence[str]]) -> str:
    """``table``, whose first row is its head, as Markdown."""
    head, *rest = table
    lines = [f"| {' | '.join(head)} |", "|" + " --- |" * len(head)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rest), ""])
