"""The chapter on delay: over all, over time, per hop against the floor, per strategy."""

from collections import defaultdict
from typing import Any

from federator_analytics.digest.broker import way
from federator_analytics.digest.figures import delay_rows, hop_rows
from federator_analytics.digest.tables import Row, Tables
from federator_analytics.digest.typical import typical_us
from federator_analytics.digest.units import count, duration, some
from federator_analytics.report import vega
from federator_analytics.report.parts import (
    Block,
    Cell,
    Section,
    Tile,
    grid,
    heat_map,
    left_out,
    table,
    whole_since,
)
from federator_analytics.report.vega import DELAY_COLUMNS, QUANTILE_COLUMNS, SMALL, WIDE, Spec, draw

TYPICAL, SLOWEST = "p50, typical", "p99, slowest pair"


def delay_section(tables: Tables, summary: dict[str, Any]) -> Section:
    """The chapter on delay, from the origin agent's clock to the destination agent's."""
    figures = summary["delay"]
    blocks = (over_time, _by_hops, pairs_block, against_floor, _by_strategy, single_hops)
    return Section(
        "delay",
        "Delay",
        "From the moment an agent took a publication at its origin until the agent at the "
        "destination had it. Half of the publications are faster than p50, 1 in 20 is slower than "
        "p95, 1 in 100 slower than p99.",
        [block(tables) for block in (*blocks, as_clients_measured)],
        [
            Tile("p50", duration(figures["delay_us_p50"])),
            Tile("p95", duration(figures["delay_us_p95"])),
            Tile("p99", duration(figures["delay_us_p99"])),
            Tile("publications", count(figures["publications"]), "measured at destinations"),
        ],
        absent="" if figures["publications"] else "No publication crossed from broker to broker.",
    )


def over_time(tables: Tables) -> Block | None:
    """The typical median and the slowest pair's p99, window by window."""
    windows: dict[Any, list[Row]] = defaultdict(list)
    for row in tables["delay_over_time"]:
        if row["quality"] != "flagged" and row["delay_us_p50"] is not None:
            windows[row["window_start"]].append(row)
    if not windows:
        return None
    lines = []  # (window, name, value): percentiles of several pairs cannot be merged
    typical = typical_us([row for rows in windows.values() for row in rows])
    for start in typical:
        lines.append((start, TYPICAL, typical[start]))
        lines.append((start, SLOWEST, max(row["delay_us_p99"] for row in windows[start])))
    divisor, unit = vega.time_unit(max(value for *_, value in lines))
    data = [
        {
            "at": f"{start:%Y-%m-%dT%H:%M:%SZ}",
            "name": name,
            "value": value / divisor,
            "tip": f"{start:%H:%M:%S} UTC, {name}: {duration(value)}",
        }
        for start, name, value in lines
    ]
    colours = {"domain": [TYPICAL, SLOWEST], "range": [vega.BLUE, vega.VERMILION]}
    spec: Spec = {
        "encoding": {
            "x": vega.time_axis((max(windows) - min(windows)).total_seconds()),
            "y": vega.measured("value", title=unit),
            "color": vega.named("name", scale=colours),
        },
        "layer": [
            {"mark": {"type": "line", "aria": False}},
            {"mark": {"type": "point", "size": 26}, "encoding": vega.TIP},
        ],
    }
    label = "Delay over time: the typical p50 and the slowest pair's p99 per window"
    return Block(
        "Over time",
        "Per window. The lower line compares each pair with its own usual delay, so it does not "
        "jump when a pair comes or goes; the upper line is the slowest hundredth of whichever pair "
        "was slowest." + whole_since(tables, "delay_over_time"),
        draw(spec, data, label, width=WIDE, height=220),
        draw(spec, data, label, width=SMALL, height=180),
        grid(
            "delay_over_time",
            sorted(tables["delay_over_time"], key=lambda row: row["window_start"]),
            "window (UTC): window_start, from: origin, to: destination, strategy, publications",
            QUANTILE_COLUMNS,
            "quality",
        ),
        is_wide=True,
    )


def _by_hops(tables: Tables) -> Block | None:
    rows = hop_rows(tables)
    if not rows:
        return None
    spec, data, divisor = vega.spread(rows, "hops", "links travelled", upright=True)
    floors = [row for row in rows if row["floor_us"] is not None]
    for row in floors:
        tip = f"hops {row['hops']}, links alone: {duration(row['floor_us'])}"
        data.append({"hops": str(row["hops"]), "floor": row["floor_us"] / divisor, "tip": tip})
    if floors:
        mark = {"type": "tick", "color": vega.GREEN, "thickness": 3, "width": 34}
        spec["layer"].append({"mark": mark, "encoding": {"y": vega.measured("floor"), **vega.TIP}})
    floor_note = " The green bar is the floor: what the links alone take." if floors else ""
    return Block(
        "Per hop",
        "Delay by the number of links a publication travelled." + floor_note,
        draw(spec, data, "Delay by number of links travelled", width=SMALL, height=220),
        grid=grid("delay", rows, "links: hops", DELAY_COLUMNS, "floor: floor_us"),
    )


def _by_strategy(tables: Tables) -> Block | None:
    rows = sorted(delay_rows(tables, "strategy"), key=lambda row: str(row["strategy"]))
    if not rows:
        return None
    spec, data, _ = vega.spread(rows, "strategy", None, upright=False)
    several = "Several routing strategies ran." if len(rows) > 1 else "One routing strategy ran."
    return Block(
        "Per strategy",
        several,
        draw(spec, data, "Delay by routing strategy", width=SMALL, height=40 + 44 * len(rows)),
        grid=grid("delay", rows, "strategy", DELAY_COLUMNS, "quality"),
    )


DOUBT = "clocks disagree and no traffic both ways tells by how much"
HOPS_SHOWN = 12
"""Links in the chart of single hops, the slowest."""


def pairs_block(tables: Tables) -> Block | None:
    """Every pair's p95 as a heat map; what cannot be believed is hatched."""
    rows = sorted(
        delay_rows(tables, "pair"),
        key=lambda row: (row["quality"] != "flagged", -(row["delay_us_p95"] or 0)),
    )
    if not rows:
        return None
    cells = {(row["origin"], row["destination"]): _cell(row) for row in rows}
    note = "p95 from origin (row) to destination (column); the stronger the colour, the slower."
    if any(cell.doubt for cell in cells.values()):
        note += f" Hatched with a question mark: not to be believed, {DOUBT}."
    return Block(
        "From broker to broker",
        note + left_out(cells),
        heat_map(cells, "Delay from origin to destination, p95"),
        grid=grid(
            "delay",
            rows,
            "from: origin, to: destination",
            DELAY_COLUMNS,
            "floor: floor_us, clock offset: clock_offset_us, quality",
        ),
        is_wide=True,
    )


def _cell(row: Row) -> Cell:
    spread = ", ".join(f"{name} {duration(row[key])}" for key, name in vega.QUANTILES)
    return Cell(
        row["delay_us_p95"] or 0,
        duration(row["delay_us_p95"]),
        f"from {row['origin']} to {row['destination']}: {spread}, "
        f"{count(row['publications'])} publications",
        DOUBT if row["quality"] == "flagged" else "",
    )


def against_floor(tables: Tables) -> Block | None:
    """Each pair's median over what its links alone take."""
    rows = [
        row
        for row in delay_rows(tables, "pair")
        if row["floor_us"] and row["delay_us_p50"] and row["quality"] != "flagged"
    ]
    if not rows:
        return None
    divisor, unit = vega.time_unit(max(max(row["floor_us"], row["delay_us_p50"]) for row in rows))
    data: list[dict[str, object]] = [
        {
            "floor": row["floor_us"] / divisor,
            "delay": row["delay_us_p50"] / divisor,
            "tip": f"from {row['origin']} to {row['destination']}: p50 "
            f"{duration(row['delay_us_p50'])}, links alone {duration(row['floor_us'])}",
        }
        for row in rows
    ]
    end = max(row["floor_us"] for row in rows) / divisor
    data += [{"even": 0, "same": 0}, {"even": end, "same": end}]
    spec: Spec = {
        "layer": [
            {
                "mark": {"type": "line", "color": vega.GREEN, "aria": False, "strokeDash": [5, 4]},
                "encoding": {"x": vega.measured("even"), "y": vega.measured("same")},
            },
            {
                "mark": {"type": "point", "color": vega.BLUE, "opacity": 0.7},
                "encoding": {
                    "x": vega.measured("floor", title=f"floor, {unit}", axis={"tickCount": 5}),
                    "y": vega.measured("delay", title=f"p50, {unit}"),
                    **vega.TIP,
                },
            },
        ]
    }
    return Block(
        "Against the floor",
        "One point per pair: p50 over what the links alone take on the shortest way. On the dashed "
        "line, forwarding would cost nothing.",
        draw(spec, data, "Median delay of each pair against its floor", width=SMALL, height=220),
    )


def single_hops(tables: Tables) -> Block | None:
    """Sampled frames from agent to agent: which link is slow."""
    by_link: dict[tuple[int, int], list[Row]] = defaultdict(list)
    doubted = 0
    for row in tables["hop_times"]:
        if row["quality"] == "flagged":
            doubted += 1
            continue
        by_link[row["sender"], row["receiver"]].append(row)
    if not by_link:
        return None
    rows = []
    for (sender, receiver), found in by_link.items():
        samples = sum(row["samples"] for row in found)
        mean = sum(row["hop_us_p50"] * row["samples"] for row in found) / max(samples, 1)
        rows.append((mean, sender, receiver, samples))
    rows.sort(reverse=True)
    divisor, unit = vega.time_unit(rows[0][0])
    data = [
        (
            way(sender, receiver, "\N{RIGHTWARDS ARROW}"),
            mean / divisor,
            f"{sender} to {receiver}: {duration(mean)}, {count(samples)} samples",
        )
        for mean, sender, receiver, samples in rows[:HOPS_SHOWN]
    ]
    return Block(
        "Single hops",
        "Sampled frames, link by link: time from one agent to the next, the slowest links first."
        + (f" Left out: {some(doubted, 'way')} whose clocks are in doubt." if doubted else ""),
        vega.bars(data, "Time of single hops, the slowest", axis=f"p50, {unit}", axis_format="~r"),
        grid=grid(
            "hop_times",
            sorted(tables["hop_times"], key=lambda row: -row["hop_us_p50"]),
            "from: origin, to: destination, hop, sender, receiver, samples",
            "p50: hop_us_p50, p95: hop_us_p95, quality",
        ),
    )


def as_clients_measured(tables: Tables) -> Block | None:
    """What test clients measured beside the agents; a federation in service has none."""
    rows = sorted(tables["clients"], key=lambda row: (row["origin"], row["destination"]))
    told = {(row["origin"], row["destination"]): row for row in delay_rows(tables, "pair")}

    def of_agents(row: Row, key: str) -> str:
        found = told.get((row["origin"], row["destination"]))
        return duration(found[key] if found else None)

    return table(
        "As clients measured it",
        "Test clients timed their own publications; agents do not see the time between a client "
        "and its broker.",
        "clients",
        rows,
        "from: origin, to: destination, publications",
        QUANTILE_COLUMNS,
        ("agents' p50", lambda row: of_agents(row, "delay_us_p50")),
        ("agents' p95", lambda row: of_agents(row, "delay_us_p95")),
        is_open=True,
    )
