"""The chapters on the topology with its links, and on what each broker's agent had to carry."""

from collections.abc import Callable, Sequence
from typing import Any

from federator_analytics.digest.broker import short, way
from federator_analytics.digest.liveness import liveness
from federator_analytics.digest.loads import fullest_ways, heaviest_flows
from federator_analytics.digest.tables import Row, Tables
from federator_analytics.digest.units import bits, count, duration, percent, size
from federator_analytics.report.parts import Block, Section, Tile, grid, table
from federator_analytics.report.topology import topology
from federator_analytics.report.vega import bars

Unit = Callable[[float | None], str]

BROKERS_SHOWN = 16
"""Bars per chart, the highest first; the table behind has every broker."""
FLOWS_SHOWN = 16
"""Rows of the table; the Parquet table has more."""


def topology_section(tables: Tables, summary: dict[str, Any]) -> Section:
    """Brokers and links as a drawing, and each link's figures."""
    load = summary["load"]
    down, stopped = len(load["dead"]), len(load["stopped"])
    ended = f"{stopped} told to stop, no other down" if stopped else "all alive at the end"
    tiles = [
        Tile(
            "brokers",
            count(load["brokers"]),
            f"{down} down at the end" if down else ended,
            "bad" if down else "good",
        ),
        Tile(
            "links",
            count(load["links"]),
            f"{len(load['links_ever_down'])} down at some time"
            if load["links_ever_down"]
            else "up all the time",
            "look" if load["links_ever_down"] else "good",
        ),
        Tile("over links", size(load["bytes"]), "data between agents, both ways"),
    ]
    drawn = Block(
        "The federation",
        "A wider line carried more bytes. Dashed: lost at some time; red: still down at the end. A "
        "crossed broker is down.",
        topology(liveness(tables), tables["links"]),
        is_wide=True,
    )
    return Section(
        "topology",
        "Brokers and links",
        "Who is beside whom, and what went over each link.",
        [drawn if load["brokers"] else None, *_links(tables)],
        tiles,
        absent="" if load["brokers"] else "No broker reported.",
    )


def fullest_block(tables: Tables) -> Block | None:
    """Load over capacity of each direction of a link whose capacity is known, the fullest first."""
    ways = fullest_ways(tables["links"])
    if not ways:
        return None
    data = [
        (
            way(row["sender"], row["receiver"], "\N{RIGHTWARDS ARROW}"),
            row["load"],
            f"{row['sender']} to {row['receiver']}: {percent(row['load'])} of "
            f"{bits(row['capacity'])}",
        )
        for row in ways[:BROKERS_SHOWN]
    ]
    return Block(
        "Fullest links",
        "Data carried, over what the link can carry, where that is configured or was learnt.",
        bars(data, "Load over capacity of the fullest links", axis="of capacity", axis_format="~%"),
        grid=grid("links", ways, "from: sender, to: receiver, load, capacity"),
    )


def flows_block(tables: Tables) -> Block | None:
    """What clients publish, by the filters that it matches: the heaviest flows of all brokers."""
    return table(
        "Heaviest flows",
        "What clients publish and others want, by the filters that it matches, the most bytes "
        "first; counted once, however many links it crosses. Planned: the share of the time in "
        "which it went by a tree of its own.",
        "flows",
        heaviest_flows(tables["flows"]),
        "from: origin, filters: flow, rate, highest: rate_max, bytes, planned: planned_share",
        shown=FLOWS_SHOWN,
        is_wide=False,
        is_open=True,
    )


def _links(tables: Tables) -> list[Block | None]:
    rows = sorted(tables["links"], key=lambda row: -(row["bytes_ab"] + row["bytes_ba"]))
    if not rows:
        return []
    data = [
        (
            way(row["a"], row["b"], "\N{EN DASH}"),
            row["bytes_ab"] + row["bytes_ba"],
            f"{row['a']} to {row['b']}: {size(row['bytes_ab'])}; back "
            f"{size(row['bytes_ba'])}; round trip {duration(row['round_trip_us_p50'])}",
        )
        for row in rows[:BROKERS_SHOWN]
    ]
    ordered = sorted(rows, key=lambda row: (row["up_share"], -(row["round_trip_us_p50"] or 0)))
    return [
        Block(
            "Busiest links",
            "Bytes both ways.",
            bars(data, "Bytes over the busiest links", axis="bytes"),
        ),
        fullest_block(tables),
        flows_block(tables),
        table(
            "Every link",
            "Least up first, then the slowest.",
            "links",
            ordered,
            ("link", _link_name),
            "up: up_share, round trip p50: round_trip_us_p50, least: round_trip_us_min",
            "bytes there: bytes_ab, bytes back: bytes_ba",
            "publications there: publications_ab, back: publications_ba",
            "duplicates, longest queue: queue_bytes_max",
        ),
    ]


def _link_name(row: Row) -> str:
    return f"{row['a']} \N{EN DASH} {row['b']}"


def brokers_section(tables: Tables, summary: dict[str, Any]) -> Section:
    """What each agent took, gave, and needed for it."""
    rows = tables["brokers"]
    load = summary["load"]
    tiles = [
        Tile("highest CPU", *_top(load["cpu_share_max"], percent, "of one core")),
        Tile("most memory", *_top(load["rss_bytes_max"], size, "resident")),
        Tile("longest stall", *_top(load["loop_lag_us_max"], duration, "until an agent looked up")),
        Tile.of_bad("dropped", load["dropped"], "publications"),
    ]
    charts = (
        ("Publications taken", "publications_in", "publications", count, "s"),
        ("Publications delivered", "delivered", "publications", count, "s"),
        ("CPU of the agent", "cpu_share", "share of one core", percent, "%"),
    )
    return Section(
        "brokers",
        "Load of the brokers",
        "What each agent took from its broker, gave to it, and needed to do so.",
        [*(_broker_bars(rows, *chart) for chart in charts), broker_table(rows)],
        tiles,
        absent="" if rows else "No agent reported its load.",
    )


def _top(top: dict[str, Any] | None, unit: Unit, note: str) -> tuple[str, str]:
    if top is None:
        return unit(None), note
    return unit(top["value"]), f"{note}, broker {top['broker']}"


def _broker_bars(
    rows: Sequence[Row], title: str, key: str, axis: str, unit: Unit, form: str
) -> Block | None:
    known = [row for row in rows if row[key] is not None]
    if not any(row[key] for row in known):
        return None
    known.sort(key=lambda row: (-row[key], row["broker"]))
    data = [
        (short(row["broker"]), row[key], f"broker {row['broker']}: {unit(row[key])}")
        for row in known[:BROKERS_SHOWN]
    ]
    more = "" if len(known) <= BROKERS_SHOWN else f" The highest {BROKERS_SHOWN} of {len(known)}."
    drawing = bars(data, f"{title} by broker", axis=axis, axis_format="~" + form)
    return Block(title, f"By broker.{more}", drawing)


def broker_table(rows: Sequence[Row]) -> Block | None:
    """Every broker's counts and gauges."""
    return table(
        "Every broker",
        "Counts over the whole span; sizes and stalls at their highest.",
        "brokers",
        sorted(rows, key=lambda row: row["broker"]),
        "broker, clients, filters, taken: publications_in, sent on: publications_out",
        "delivered, no_route, dropped, CPU: cpu_share, memory: rss_bytes_max",
        "send queue: send_queue_bytes_max, custody: custody_bytes_max",
        "stall: loop_lag_us_max, restarts, last_heard",
    )
