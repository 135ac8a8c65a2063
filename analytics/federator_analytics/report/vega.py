"""Vega-Lite specifications as inline SVG.

vl-convert runs Vega inside the Python process, so the page carries neither a library nor a script
for its charts, prints sharply, and every mark keeps a description that screen readers and the
page's small hover script read. Colours are drawn from a short palette whose every colour the style
sheet replaces in dark mode: ``svg [fill="#0072b2"] { fill: var(--blue) }``. Texts are measured
larger than the style sheet draws them, since the reader's font may be wider than the one here.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import vl_convert as vlc
from markupsafe import Markup

from federator_analytics.digest.tables import Row
from federator_analytics.digest.units import duration

Spec = dict[str, Any]

BLUE, VERMILION, GREEN, PURPLE, ORANGE = "#0072b2", "#d55e00", "#009e73", "#b0568f", "#b87800"
"""Told apart by colour-blind people too (Okabe and Ito, darkened where white needs it)."""
SERIES = (BLUE, VERMILION, GREEN, PURPLE, ORANGE)
INK, FAINT, RULE = "#1a1a1b", "#5b6068", "#d9dce1"
SHAPES = ("circle", "triangle-up", "square", "diamond", "cross")

SMALL, WIDE = 372, 772
"""Widths of a drawing in a column and in two of them."""

MEASURED = 14
"""px for which texts are given room; the style sheet draws them at 12."""

_CONFIG: Spec = {
    "background": None,
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "padding": 4,
    "axis": {
        "labelColor": FAINT,
        "titleColor": FAINT,
        "labelFontSize": MEASURED,
        "titleFontSize": MEASURED,
        "titleFontWeight": "normal",
        "domainColor": RULE,
        "tickColor": RULE,
        "gridColor": RULE,
        "labelLimit": 160,
        "labelOverlap": True,
        "titlePadding": 8,
    },
    "axisY": {"domain": False, "ticks": False, "labelPadding": 6},
    "legend": {
        "orient": "top",
        "title": None,
        "labelColor": INK,
        "labelFontSize": MEASURED,
        "labelLimit": 240,
        "columns": 3,
        "symbolSize": 70,
        "offset": 6,
    },
    "range": {"category": list(SERIES), "symbol": list(SHAPES)},
    "tick": {"opacity": 1},
    "point": {"filled": True, "size": 60, "opacity": 1},
    "line": {"strokeWidth": 2, "strokeCap": "round", "strokeJoin": "round"},
    "bar": {"cornerRadiusEnd": 2},
}
_SIZE = re.compile(r'^<svg [^>]*?width="([\d.]+)" height="([\d.]+)" viewBox="([^"]+)">')


def draw(
    spec: Spec, rows: Sequence[Mapping[str, Any]], label: str, *, width: int, height: int
) -> Markup:
    """The chart as SVG that scales down but not up beyond ``width``.

    Args:
        spec: A Vega-Lite unit or layer, without data, size and configuration.
        rows: The data; what they hold is shown as text, whatever it is.
        label: The chart in a sentence, for who cannot see it.
        width: Outer width in px, axes included.
        height: Of the plot in px, without axes.
    """
    full = {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "data": {"values": list(rows)},
        "width": width,
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "config": _CONFIG,
        **spec,
    }
    return _inline(vlc.vegalite_to_svg(full), label)


def _inline(svg: str, label: str) -> Markup:
    found = _SIZE.match(svg)
    assert found, svg[:200]
    width, _, box = found.groups()
    head = Markup(
        '<svg class="chart" role="img" aria-label="{}" viewBox="{}" style="max-width:{}px">'
    ).format(label, box, width)
    # Vega escapes every text it draws (tests hold it to that).
    return head + Markup(svg[found.end() :])


def time_unit(highest_us: float | None) -> tuple[int, str]:
    """Divisor and name of the unit in which durations up to ``highest_us`` read well."""
    if highest_us is None or highest_us < 2_000:
        return 1, "microseconds"
    return (1_000, "milliseconds") if highest_us < 2_000_000 else (1_000_000, "seconds")


_PLAIN_ZERO = "datum.value === 0 ? '0' : datum.label"


TIP: Spec = {"description": {"field": "tip"}}
"""What a mark says under the pointer, and to who cannot see it."""


def named(field: str, **more: object) -> Spec:
    """A channel of names, which need no title."""
    return {"field": field, "type": "nominal", "title": None, **more}


def measured(field: str, **more: object) -> Spec:
    """A channel of numbers."""
    return {"field": field, "type": "quantitative", **more}


def bars(
    rows: Sequence[tuple[str, float, str]], label: str, *, axis: str, axis_format: str = "~s"
) -> Markup:
    """Horizontal bars, in the order given: each with its name, its value and its tip."""
    form = {"format": axis_format, "tickCount": 4, "labelExpr": _PLAIN_ZERO}
    along = measured("value", title=axis, axis=form)
    spec: Spec = {
        "encoding": {"y": named("name", sort=None), "x": along, **TIP},
        "mark": {"type": "bar", "color": BLUE, "height": {"band": 0.7}},
    }
    data = [dict(zip(("name", "value", "tip"), row, strict=True)) for row in rows]
    return draw(spec, data, label, width=SMALL, height=max(60, 24 * len(rows)))


def time_axis(seconds: float) -> Spec:
    """An axis in UTC whose labels are as fine as a span of so many seconds needs."""
    form = "%H:%M:%S" if seconds < 600 else "%H:%M" if seconds < 86_400 else "%d %b %H:%M"
    axis = {"tickCount": 5, "grid": False, "format": form}
    scale = {"type": "utc"}
    return {"field": "at", "type": "temporal", "title": "time (UTC)", "scale": scale, "axis": axis}


QUANTILES = (("delay_us_p50", "p50"), ("delay_us_p95", "p95"), ("delay_us_p99", "p99"))
QUANTILE_COLUMNS = ", ".join(f"{name}: {key}" for key, name in QUANTILES)
DELAY_COLUMNS = (
    f"publications, {QUANTILE_COLUMNS}, mean: delay_us_mean, least: delay_us_min"
    ", most: delay_us_max"
)
"""What every table of delays shows."""


def spread(
    rows: Sequence[Row], key: str, title: str | None, *, upright: bool
) -> tuple[Spec, list[dict[str, Any]], int]:
    """One line per row, with a mark of its own colour and shape per quantile of its delay.

    ``key`` names the row, ``title`` is of the rows' axis, and the lines stand or lie. Returns the
    specification, its data, and by what their microseconds were divided.
    """
    divisor, unit = time_unit(max(row["delay_us_p99"] or 0 for row in rows))
    data = [
        {
            key: str(row[key]),
            "name": name,
            "value": row[quantile] / divisor,
            "tip": f"{key} {row[key]}, {name}: {duration(row[quantile])}",
        }
        for row in rows
        for quantile, name in QUANTILES
        if row[quantile] is not None
    ]
    names = [name for _, name in QUANTILES]
    groups, along = ("x", "y") if upright else ("y", "x")
    values = {along: measured("value", title=unit)}
    told = {"field": "name", "type": "nominal"}
    colours = {"domain": names, "range": [BLUE, PURPLE, VERMILION]}
    shapes = {"domain": names, "range": ["circle", "triangle-up", "square"]}
    spec: Spec = {
        "encoding": {
            groups: {"field": key, "type": "ordinal", "title": title, "axis": {"labelAngle": 0}}
        },
        "layer": [
            {
                "mark": {"type": "line", "color": INK, "opacity": 0.35, "aria": False},
                "encoding": {**values, "detail": {"field": key}},
            },
            {
                "mark": {"type": "point", "size": 70},
                "encoding": {
                    **values,
                    "color": {**told, "scale": colours},
                    "shape": {**told, "scale": shapes},
                    **TIP,
                },
            },
        ],
    }
    return spec, data, divisor
