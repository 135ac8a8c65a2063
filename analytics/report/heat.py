"""A heat map that is a table: read by eye, by a screen reader, and in print without colours.

The shade is a percentage that the style sheet mixes between two colours, so it follows light and
dark.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from markupsafe import Markup

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
    heads = Markup("").join(Markup('<th scope="col">{}</th>').format(b) for b in brokers)
    rows = Markup("").join(
        Markup('<tr><th scope="row">{}</th>{}</tr>').format(
            origin,
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
