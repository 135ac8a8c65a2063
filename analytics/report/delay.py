"""The chapter on delay: over all, over time, per hop against the floor, per strategy."""

from collections import defaultdict
from typing import Any

from analytics.digest.figures import delay_rows, hop_rows
from analytics.digest.tables import Row, Tables
from analytics.digest.units import count, duration
from analytics.report.delay_pairs import (
    against_floor,
    as_clients_measured,
    pairs_block,
    single_hops,
)
from analytics.report.parts import Block, Section, Tile, col, grid
from analytics.report.spread import DELAY_COLUMNS, QUANTILES, spread_data, spread_spec
from analytics.report.vega import (
    BLUE,
    GREEN,
    SMALL,
    VERMILION,
    WIDE,
    Spec,
    draw,
    time_axis,
    time_unit,
)

TYPICAL, SLOWEST = "p50, middle pair", "p99, slowest pair"


def delay_section(tables: Tables, summary: dict[str, Any]) -> Section:
    """From the origin agent's clock to the destination agent's, publication by publication."""
    figures = summary["delay"]
    blocks = [
        over_time(tables),
        _by_hops(tables),
        pairs_block(tables),
        against_floor(tables),
        _by_strategy(tables),
        single_hops(tables),
        as_clients_measured(tables),
    ]
    return Section(
        "delay",
        "Delay",
        "From the moment an agent took a publication at its origin until the agent at the "
        "destination had it. Half of the publications are faster than p50, 1 in 20 is slower than "
        "p95, 1 in 100 slower than p99.",
        [block for block in blocks if block],
        [
            Tile("p50", duration(figures["delay_us_p50"])),
            Tile("p95", duration(figures["delay_us_p95"])),
            Tile("p99", duration(figures["delay_us_p99"])),
            Tile("publications", count(figures["publications"]), "measured at destinations"),
        ],
        absent="" if figures["publications"] else "No publication crossed from broker to broker.",
    )


def over_time(tables: Tables) -> Block | None:
    """The middle pair's median and the slowest pair's p99, window by window."""
    windows: dict[Any, list[Row]] = defaultdict(list)
    for row in tables["delay_over_time"]:
        if row["quality"] != "flagged" and row["delay_us_p50"] is not None:
            windows[row["window_start"]].append(row)
    if not windows:
        return None
    lines = []  # (window, name, value): percentiles of several pairs cannot be merged
    for start in sorted(windows):
        middle = sorted(row["delay_us_p50"] for row in windows[start])
        lines.append((start, TYPICAL, middle[(len(middle) - 1) // 2]))
        lines.append((start, SLOWEST, max(row["delay_us_p99"] for row in windows[start])))
    divisor, unit = time_unit(max(value for *_, value in lines))
    data = [
        {
            "at": f"{start:%Y-%m-%dT%H:%M:%SZ}",
            "name": name,
            "value": value / divisor,
            "tip": f"{start:%H:%M:%S} UTC, {name}: {duration(value)}",
        }
        for start, name, value in lines
    ]
    spec: Spec = {
        "encoding": {
            "x": time_axis((max(windows) - min(windows)).total_seconds()),
            "y": {"field": "value", "type": "quantitative", "title": unit},
            "color": {
                "field": "name",
                "type": "nominal",
                "scale": {"domain": [TYPICAL, SLOWEST], "range": [BLUE, VERMILION]},
            },
        },
        "layer": [
            {"mark": {"type": "line", "aria": False}},
            {"mark": {"type": "point", "size": 26}, "encoding": {"description": {"field": "tip"}}},
        ],
    }
    label = "Delay over time: the middle pair's p50 and the slowest pair's p99 per window"
    return Block(
        "Over time",
        "Per window: half of the pairs lie below the lower line; the upper line is the slowest "
        "hundredth of whichever pair was slowest.",
        draw(spec, data, label, width=WIDE, height=220),
        draw(spec, data, label, width=SMALL, height=180),
        grid(
            "delay_over_time",
            sorted(tables["delay_over_time"], key=lambda row: row["window_start"]),
            ("window (UTC)", lambda row: f"{row['window_start']:%Y-%m-%d %H:%M:%S}"),
            col("from", "origin"),
            col("to", "destination"),
            col("strategy", "strategy"),
            col("publications", "publications", count),
            *(col(name, key, duration) for key, name in QUANTILES),
            col("quality", "quality"),
        ),
        is_wide=True,
    )


def _by_hops(tables: Tables) -> Block | None:
    rows = hop_rows(tables)
    if not rows:
        return None
    divisor, unit = time_unit(max((row["delay_us_p99"] or 0) for row in rows))
    data = spread_data(rows, "hops", divisor, "hops")
    spec = spread_spec("hops", unit, "links travelled", upright=True)
    floors = [row for row in rows if row["floor_us"] is not None]
    for row in floors:
        tip = f"hops {row['hops']}, links alone: {duration(row['floor_us'])}"
        data.append({"hops": str(row["hops"]), "floor": row["floor_us"] / divisor, "tip": tip})
    if floors:
        y = {"field": "floor", "type": "quantitative"}
        mark = {"type": "tick", "color": GREEN, "thickness": 3, "width": 34}
        spec["layer"].append({"mark": mark, "encoding": {"y": y, "description": {"field": "tip"}}})
    floor_note = " The green bar is the floor: what the links alone take." if floors else ""
    return Block(
        "Per hop",
        "Delay by the number of links a publication travelled." + floor_note,
        draw(spec, data, "Delay by number of links travelled", width=SMALL, height=220),
        grid=grid(
            "delay", rows, col("links", "hops"), *DELAY_COLUMNS, col("floor", "floor_us", duration)
        ),
    )


def _by_strategy(tables: Tables) -> Block | None:
    rows = sorted(delay_rows(tables, "strategy"), key=lambda row: str(row["strategy"]))
    if not rows:
        return None
    divisor, unit = time_unit(max((row["delay_us_p99"] or 0) for row in rows))
    data = spread_data(rows, "strategy", divisor, "strategy")
    spec = spread_spec("strategy", unit, None, upright=False)
    several = "Several routing strategies ran." if len(rows) > 1 else "One routing strategy ran."
    return Block(
        "Per strategy",
        several,
        draw(spec, data, "Delay by routing strategy", width=SMALL, height=40 + 44 * len(rows)),
        grid=grid(
            "delay", rows, col("strategy", "strategy"), *DELAY_COLUMNS, col("quality", "quality")
        ),
    )
