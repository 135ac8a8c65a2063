"""What a report page is made of: chapters of blocks; a block is a drawing and its numbers."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from markupsafe import Markup

from federator_analytics.digest.broker import short
from federator_analytics.digest.tables import Row, Tables
from federator_analytics.digest.units import (
    DASH,
    bits,
    count,
    duration,
    instant,
    percent,
    ratio,
    size,
)

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


def grid(source: str, rows: Sequence[Row], *columns: str | Column, shown: int = ROWS_SHOWN) -> Grid:
    """The first rows of a table; sort them so that these matter most.

    Columns are ``"qos"`` or ``"QoS: qos"``, a heading with the rows' key, or several with commas
    between. What no key says is a ``Column``.
    """
    found: list[Column] = []
    for told in columns:
        found += map(_column, told.split(", ")) if isinstance(told, str) else [told]
    texts = [[text(row) for _, text in found] for row in rows[:shown]]
    return Grid([head for head, _ in found], texts, source, len(rows))


_NAMES = frozenset(
    ("broker", "origin", "destination", "sender", "receiver", "neighbour", "subject")  # brokers
) | {"hop", "hops", "qos", "line"}
"""Keys of whole numbers that are no counts."""
_UNITS = {
    "_per_": ratio,
    "rate": bits,
    "capacity": bits,
    "load": percent,
    "_us": duration,
    "bytes": size,
    "share": percent,
}
"""What a key has in its name, to the unit of its values; others are counts."""


def _column(told: str) -> Column:
    head, _, key = told.rpartition(": ")
    unit = next((unit for part, unit in _UNITS.items() if part in key), count)

    def text(row: Row) -> str:
        match row[key]:
            case None:
                return DASH
            case datetime() as at:
                return instant(at)
            case value if isinstance(value, str) or key in _NAMES:
                return str(value)
            case figure:
                return unit(figure)

    return head or key.replace("_", " "), text


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


def table(
    title: str,
    note: str,
    source: str,
    rows: Sequence[Row],
    *columns: str | Column,
    shown: int = ROWS_SHOWN,
    is_wide: bool = True,
    is_open: bool = False,
) -> Block | None:
    """A ``grid`` without a drawing; nothing without rows."""
    told = grid(source, rows, *columns, shown=shown)
    return Block(title, note, grid=told, is_wide=is_wide, is_open=is_open) if rows else None


def whole_since(tables: Tables, name: str) -> str:
    """What to say below a drawing of a table of which only the newest rows were read."""
    since = tables.cut.get(name)
    return (
        f" Whole from {instant(since)} UTC on: the table is longer than is read." if since else ""
    )


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure in large print."""

    label: str
    value: str
    note: str = ""
    weight: str = ""

    @classmethod
    def of_bad(cls, label: str, number: int, note: str, weight: str = "bad") -> "Tile":
        """How many there are of what should not be."""
        return cls(label, count(number), note, weight if number else "good")


@dataclass(frozen=True, slots=True)
class Section:
    """A chapter. ``absent`` is said in place of the blocks when there is nothing to draw."""

    id: str
    title: str
    lead: str
    blocks: Sequence[Block | None] = field(default_factory=tuple)  # None where nothing is known
    tiles: Sequence[Tile] = field(default_factory=tuple)
    absent: str = ""


BROKERS_MAX = 40
"""Rows and columns shown: more are narrower than their figures on any screen."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One pair's value; ``doubt`` hatches the cell and says why it may not be believed."""

    value: float
    text: str
    tip: str
    doubt: str = ""


def heat_map(cells: Mapping[tuple[int, int], Cell], caption: str) -> Markup:
    """Origins downwards, destinations across; of many brokers those with the highest values."""
    highest: dict[int, float] = {}
    for pair, cell in cells.items():
        for end in pair:
            highest[end] = max(highest.get(end, 0.0), cell.value)
    brokers = sorted(sorted(highest, key=lambda end: (-highest[end], end))[:BROKERS_MAX])
    known = [cell.value for cell in cells.values() if not cell.doubt and cell.value > 0]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    # Columns are as narrow as their figures: the rows say which broker is called what.
    head = Markup('<th scope="col" title="{}">{}</th>')
    heads = Markup("").join(head.format(b, int(b)) for b in brokers)
    rows = Markup("").join(
        Markup('<tr><th scope="row" title="{}">{}</th>{}</tr>').format(
            origin,
            short(origin),
            Markup("").join(_cell(cells.get((origin, to)), low, high) for to in brokers),
        )
        for origin in brokers
    )
    return Markup(
        '<div class="scroll" tabindex="0" role="region" aria-label="{0}"><table class="heat">'
        '<caption>{0}</caption><thead><tr><th scope="col" class="corner">from \\ to</th>{1}</tr>'
        "</thead><tbody>{2}</tbody></table></div>"
    ).format(caption, heads, rows)


def _cell(cell: Cell | None, low: float, high: float) -> Markup:
    if cell is None:
        return Markup('<td class="none"></td>')
    if cell.doubt:
        text = '<td class="doubt" title="{0}: {1}">{2}<span class="mark"> ?</span></td>'
        return Markup(text).format(cell.tip, cell.doubt, cell.text)
    text = '<td class="shade {3}" style="--heat:{0}%" title="{1}">{2}</td>'
    share = _share(cell.value, low, high)
    return Markup(text).format(share, cell.tip, cell.text, "deep" if share >= 55 else "pale")


def _share(value: float, low: float, high: float) -> int:
    """0 to 100; by equal factors when the values span more than a decade."""
    if value <= 0 or high <= low:
        return 0 if value <= 0 else 30
    if high > 10 * low:
        return round(100 * math.log(value / low) / math.log(high / low))
    return round(100 * (value - low) / (high - low))


def left_out(cells: Mapping[tuple[int, int], Cell]) -> str:
    """What to say below a map that does not show every broker."""
    brokers = len({end for pair in cells for end in pair})
    if brokers <= BROKERS_MAX:
        return ""
    return f" Shown are the {BROKERS_MAX} of {brokers} brokers with the highest values."
