"""What a report page is made of: chapters of blocks; a block is a drawing and its numbers."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from analytics.digest.tables import Row
from analytics.digest.units import DASH

ROWS_SHOWN = 200
"""Rows of a table on the page; the Parquet table has all of them."""
_FIGURE = re.compile(rf"[<>]? ?-?\d|{DASH}$")


Column = tuple[str, Callable[[Row], str]]
"""A heading, and a row's text below it."""


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of texts. ``source`` names the Parquet table that has every row."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    source: str
    total: int

    @property
    def left(self) -> int:
        """Rows that are not shown."""
        return self.total - len(self.rows)

    @property
    def numeric(self) -> list[bool]:
        """Which columns hold only figures: they line up at the right. The first names the row."""
        columns = list(zip(*self.rows, strict=True)) or [()] * len(self.heads)
        return [bool(n) and all(map(_FIGURE.match, column)) for n, column in enumerate(columns)]


def grid(source: str, rows: Sequence[Row], *columns: Column, shown: int = ROWS_SHOWN) -> Grid:
    """The first rows of a table; sort them so that these matter most."""
    texts = [[text(row) for _, text in columns] for row in rows[:shown]]
    return Grid([head for head, _ in columns], texts, source, len(rows))


def col(head: str, key: str, unit: Callable[[Any], str] | None = None) -> Column:
    """One key of the rows, in a unit; without one as it stands, NULL as a dash."""
    if unit is not None:
        return head, lambda row: unit(row[key])
    return head, lambda row: DASH if row[key] is None else str(row[key])


@dataclass(frozen=True, slots=True)
class Block:
    """One drawing. ``narrow`` replaces it on a phone; a wide block takes two columns of three."""

    title: str
    note: str
    drawing: Markup | None = None
    narrow: Markup | None = None
    grid: Grid | None = None
    is_wide: bool = False
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure in large print."""

    label: str
    value: str
    note: str = ""
    weight: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A chapter. ``absent`` is said in place of the blocks when there is nothing to draw."""

    id: str
    title: str
    lead: str
    blocks: Sequence[Block] = field(default_factory=tuple)
    tiles: Sequence[Tile] = field(default_factory=tuple)
    absent: str = ""
