"""Delay between pairs of brokers: all pairs as a map, against the floor, link by link."""

from collections import defaultdict

from analytics.digest.figures import delay_rows
from analytics.digest.tables import Row, Tables
from analytics.digest.units import count, duration, some
from analytics.report.heat import Cell, heat_map, left_out
from analytics.report.parts import Block, col, grid
from analytics.report.spread import DELAY_COLUMNS, QUANTILES
from analytics.report.vega import BLUE, GREEN, SMALL, Spec, bars, draw, time_unit

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
            col("from", "origin"),
            col("to", "destination"),
            *DELAY_COLUMNS,
            col("floor", "floor_us", duration),
            col("clock offset", "clock_offset_us", duration),
            col("quality", "quality"),
        ),
        is_wide=True,
    )


def _cell(row: Row) -> Cell:
    spread = ", ".join(f"{name} {duration(row[key])}" for key, name in QUANTILES)
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
    divisor, unit = time_unit(max(max(row["floor_us"], row["delay_us_p50"]) for row in rows))
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
    floor = {"field": "floor", "type": "quantitative", "title": f"floor, {unit}"}
    spec: Spec = {
        "layer": [
            {
                "mark": {"type": "line", "color": GREEN, "aria": False, "strokeDash": [5, 4]},
                "encoding": {
                    "x": {"field": "even", "type": "quantitative"},
                    "y": {"field": "same", "type": "quantitative"},
                },
            },
            {
                "mark": {"type": "point", "color": BLUE, "opacity": 0.7},
                "encoding": {
                    "x": {**floor, "axis": {"tickCount": 5}},
                    "y": {"field": "delay", "type": "quantitative", "title": f"p50, {unit}"},
                    "description": {"field": "tip"},
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
    divisor, unit = time_unit(rows[0][0])
    data = [
        {
            "name": f"{sender} \N{RIGHTWARDS ARROW} {receiver}",
            "value": mean / divisor,
            "tip": f"{sender} to {receiver}: {duration(mean)}, {count(samples)} samples",
        }
        for mean, sender, receiver, samples in rows[:HOPS_SHOWN]
    ]
    return Block(
        "Single hops",
        "Sampled frames, link by link: time from one agent to the next, the slowest links first."
        + (f" Left out: {some(doubted, 'way')} whose clocks are in doubt." if doubted else ""),
        bars(data, "Time of single hops, the slowest", axis=f"p50, {unit}", axis_format="~r"),
        grid=grid(
            "hop_times",
            sorted(tables["hop_times"], key=lambda row: -row["hop_us_p50"]),
            col("from", "origin"),
            col("to", "destination"),
            col("hop", "hop"),
            col("sender", "sender"),
            col("receiver", "receiver"),
            col("samples", "samples", count),
            col("p50", "hop_us_p50", duration),
            col("p95", "hop_us_p95", duration),
            col("quality", "quality"),
        ),
    )


def as_clients_measured(tables: Tables) -> Block | None:
    """What test clients measured beside the agents; a federation in service has none."""
    rows = sorted(tables["clients"], key=lambda row: (row["origin"], row["destination"]))
    if not rows:
        return None
    told = {(row["origin"], row["destination"]): row for row in delay_rows(tables, "pair")}

    def of_agents(row: Row, key: str) -> str:
        found = told.get((row["origin"], row["destination"]))
        return duration(found[key] if found else None)

    return Block(
        "As clients measured it",
        "Test clients timed their own publications; agents do not see the time between a client "
        "and its broker.",
        grid=grid(
            "clients",
            rows,
            col("from", "origin"),
            col("to", "destination"),
            col("publications", "publications", count),
            *(col(name, key, duration) for key, name in QUANTILES),
            ("agents' p50", lambda row: of_agents(row, "delay_us_p50")),
            ("agents' p95", lambda row: of_agents(row, "delay_us_p95")),
        ),
        is_wide=True,
        is_open=True,
    )
