"""The links of the grid before and after, as one picture."""

from collections.abc import Mapping
from html import escape

from federator.protocol.types import BrokerId
from lab.steered.narrow import CAPACITY, GRID, Spell, Way

STEP, MARGIN = 170, 70
_FULL, _BUSY, _CALM = "#c53030", "#b7791f", "#2f855a"


def picture(plain: Spell, steered: Spell) -> str:
    wide, high = 2 * MARGIN + 2 * STEP, 2 * MARGIN + STEP + 30
    sides = [("without a steerer", plain), ("steered", steered)]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * wide} {high}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{2 * wide}" height="{high}" fill="white"/>',
    ]
    for number, (title, spell) in enumerate(sides):
        parts += [f'<g transform="translate({number * wide} 0)">', *_side(title, spell), "</g>"]
    return "\n".join([*parts, "</svg>", ""])


def _side(title: str, spell: Spell) -> list[str]:
    heading = f"{title}: {spell.lost_share:.1%} lost, worst p99 {spell.worst_ms(0.99):.0f} ms"
    lines = [f'<text x="{MARGIN}" y="28" font-weight="bold">{escape(heading)}</text>']
    for link in GRID.links:
        for way in ((link.a, link.b), (link.b, link.a)):
            lines += _way(way, spell.loads_bit_per_s)
    for id in GRID.ids:
        x, y = _place(id)
        lines.append(f'<circle cx="{x}" cy="{y}" r="17" fill="#2b6cb0"/>')
        lines.append(f'<text x="{x}" y="{y + 5}" fill="white" text-anchor="middle">{id}</text>')
    return lines


def _way(way: Way, loads: Mapping[Way, float]) -> list[str]:
    share = loads[way] / CAPACITY
    (x1, y1), (x2, y2) = map(_place, way)
    right = ((y1 - y2) / STEP * -1, (x1 - x2) / STEP * -1)
    x1, x2 = (round(x + 6 * right[0]) for x in (x1, x2))
    y1, y2 = (round(y + 6 * right[1]) for y in (y1, y2))
    colour = _FULL if share > 0.95 else _BUSY if share > 0.6 else _CALM
    style = f'stroke="{colour}" stroke-width="{1 + 8 * share:.1f}"'
    x, y = (x1 + x2) / 2 + 22 * right[0], (y1 + y2) / 2 + 14 * right[1] + 4
    return [
        f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" {style}/>',
        f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="middle" fill="{colour}">{share:.0%}</text>',
    ]


def _place(id: BrokerId) -> tuple[int, int]:
    row, column = divmod(id, 3)
    return MARGIN + column * STEP, MARGIN + 30 + row * STEP
