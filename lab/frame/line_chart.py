"""A line chart as SVG text: a few curves over one axis, readable in black and white."""

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 640, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 90, 150, 40, 50
_COLOURS = ("#1b6ca8", "#c8553d", "#3a7d44", "#8f4fa0", "#b8860b", "#444444")
_DASHES = ("", "6 3", "2 3", "8 3 2 3", "1 4", "12 4")


def line_chart(
    title: str,
    x_label: str,
    y_label: str,
    curves: Mapping[str, Mapping[float, float]],
    *,
    halves: Mapping[str, Mapping[float, float]] | None = None,
    log_x: bool = False,
) -> str:
    """The chart. Curves that lie on one another are drawn thinner on top of thicker.

    Args:
        title, x_label, y_label: Above, below and beside it.
        curves: By name: y by x; at least one point in all.
        halves: Half the width of what is known of y, drawn as bars: likewise.
        log_x: Equal factors are equally wide; every x above 0.
    """
    xs = [x for curve in curves.values() for x in curve]
    ys = [0.0, *(y for curve in curves.values() for y in curve.values())]
    y_ticks = _ticks(min(ys), max(ys))
    x_ticks = _powers(min(xs), max(xs)) if log_x else _ticks(min(xs), max(xs))
    x_low, x_high = min(xs[0], x_ticks[0], *xs), max(x_ticks[-1], *xs)
    y_low, y_high = min(y_ticks[0], *ys), max(y_ticks[-1], *ys)

    def across(x: float) -> float:
        place, low, high = (math.log(v) if log_x else v for v in (x, x_low, x_high))
        share = (place - low) / ((high - low) or 1.0)
        return _LEFT + share * (WIDTH - _LEFT - _RIGHT)

    def up(y: float) -> float:
        share = (y - y_low) / ((y_high - y_low) or 1.0)
        return HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(WIDTH / 2, 20, title, "middle", bold=True),
        _text((_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - 10, x_label, "middle"),
        f'<g transform="rotate(-90 16 {HEIGHT / 2})">'
        + _text(16, HEIGHT / 2, y_label, "middle")
        + "</g>",
    ]
    for tick in y_ticks:
        line = f'x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{up(tick):.1f}" y2="{up(tick):.1f}"'
        parts.append(f'<line {line} stroke="#dddddd"/>')
        parts.append(_text(_LEFT - 8, up(tick) + 4, f"{tick:,g}", "end"))
    parts += [_text(across(tick), HEIGHT - _BOTTOM + 18, f"{tick:g}", "middle") for tick in x_ticks]
    for number, (name, curve) in enumerate(curves.items()):
        places = [(across(x), up(y)) for x, y in sorted(curve.items())]
        parts += _curve(name, number, len(curves), places)
        for x, half in (halves or {}).get(name, {}).items():
            low, high = up(curve[x] - half), up(curve[x] + half)
            parts.append(_bar(number, across(x), low, high))
    return "\n".join([*parts, "</svg>", ""])


def stacked(charts: Sequence[str]) -> str:
    size = f'width="{WIDTH}" height="{HEIGHT}"'
    parts = [
        chart.replace("<svg ", f'<svg y="{HEIGHT * number}" {size} ', 1)
        for number, chart in enumerate(charts)
    ]
    head = f'viewBox="0 0 {WIDTH} {HEIGHT * len(charts)}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {head}>\n{"".join(parts)}</svg>\n'


def _curve(name: str, number: int, of: int, places: Sequence[tuple[float, float]]) -> list[str]:
    colour = _COLOURS[number % len(_COLOURS)]
    stroke = f'stroke="{colour}" stroke-width="{1.2 + 0.5 * (of - number)}"'
    dash = f'stroke-dasharray="{_DASHES[number % len(_DASHES)]}"'
    way = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    at = _TOP + 20 + 20 * number
    legend = f'x1="{WIDTH - _RIGHT + 12}" x2="{WIDTH - _RIGHT + 42}" y1="{at}" y2="{at}"'
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
    return [
        f'<polyline points="{way}" fill="none" {stroke} {dash}/>',
        *dots,
        f"<line {legend} {stroke} {dash}/>",
        _text(WIDTH - _RIGHT + 48, at + 4, name, "start"),
    ]


def _bar(number: int, x: float, low: float, high: float) -> str:
    colour = _COLOURS[number % len(_COLOURS)]
    way = f"M{x - 3:.1f},{low:.1f}h6M{x - 3:.1f},{high:.1f}h6M{x:.1f},{low:.1f}V{high:.1f}"
    return f'<path d="{way}" stroke="{colour}" fill="none"/>'


def _text(x: float, y: float, text: str, anchor: str, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{weight}>{escape(text)}</text>'


def _ticks(low: float, high: float, about: int = 5) -> list[float]:
    span = (high - low) or abs(high) or 1.0
    rough = span / about
    magnitude = 10 ** math.floor(math.log10(rough))
    step = next(m * magnitude for m in (1, 2, 2.5, 5, 10) if m * magnitude >= rough)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(n * step, 12) for n in range(first, last + 1)]


def _powers(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    return [float(10**n) for n in range(first, last + 1)]
