"""p50, p95 and p99 of several groups side by side: three marks on a line per group."""

from typing import Any

from analytics.digest.tables import Row
from analytics.digest.units import count, duration
from analytics.report.parts import Column, col
from analytics.report.vega import BLUE, INK, PURPLE, VERMILION, Spec

QUANTILES = (("delay_us_p50", "p50"), ("delay_us_p95", "p95"), ("delay_us_p99", "p99"))

DELAY_COLUMNS: tuple[Column, ...] = (
    col("publications", "publications", count),
    *(col(name, key, duration) for key, name in QUANTILES),
    col("mean", "delay_us_mean", duration),
    col("least", "delay_us_min", duration),
    col("most", "delay_us_max", duration),
)
"""What every table of delays shows."""


def spread_spec(key: str, unit: str, title: str | None, *, upright: bool) -> Spec:
    """One line per value of ``key``, with a mark of its own colour and shape per quantile.

    Args:
        key: The field that names the group.
        unit: What the values are in.
        title: Of the groups' axis.
        upright: The lines stand; else they lie.
    """
    names = [name for _, name in QUANTILES]
    groups, along = ("x", "y") if upright else ("y", "x")
    values = {along: {"field": "value", "type": "quantitative", "title": unit}}
    told = {"field": "name", "type": "nominal"}
    colours = {"domain": names, "range": [BLUE, PURPLE, VERMILION]}
    shapes = {"domain": names, "range": ["circle", "triangle-up", "square"]}
    return {
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
                    "description": {"field": "tip"},
                },
            },
        ],
    }


def spread_data(rows: list[Row], key: str, divisor: int, word: str) -> list[dict[str, Any]]:
    """The rows' quantiles, one per mark; ``word`` says what ``key`` is."""
    return [
        {
            key: str(row[key]),
            "name": name,
            "value": row[quantile] / divisor,
            "tip": f"{word} {row[key]}, {name}: {duration(row[quantile])}",
        }
        for row in rows
        for quantile, name in QUANTILES
        if row[quantile] is not None
    ]
