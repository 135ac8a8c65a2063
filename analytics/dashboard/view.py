"""What the dashboard shows of the tables: fragments of HTML by the place they stand in.

The page is drawn here, not in the browser: the same drawings as in the report, the same escaping,
and a script that only puts fragments into their places.
"""

from collections.abc import Mapping
from datetime import datetime
from statistics import median_low
from typing import Any

from analytics.digest.figures import delay_rows, summarise
from analytics.digest.liveness import liveness
from analytics.digest.tables import Row, Tables
from analytics.digest.units import count, duration, ratio
from analytics.report.changes import about, words
from analytics.report.costs import announcements_block, kinds_block
from analytics.report.delay import over_time
from analytics.report.load import broker_table
from analytics.report.page import WEIGHTS, asset, span_words, templates
from analytics.report.parts import Block, Tile, table
from analytics.report.topology import topology

WINDOWS_SHOWN = 180
"""Windows in the chart of delay: half an hour of 10 s each."""
EVENTS_SHOWN = 40
PAIRS_SHOWN = 10

_SAD = frozenset({"link_down", "broker_down", "agent_stopped", "spool_dropped"})
_GLAD = frozenset({"link_up", "broker_up", "agent_started"})


def fragments(tables: Tables) -> Mapping[str, str]:
    """HTML by the id of the element that holds it."""
    summary = summarise(tables)
    recent = _recent(tables)
    page = templates(**{"live.html.j2": asset("live.html.j2", "analytics.dashboard")})
    made = page.get_template("live.html.j2").make_module(
        {
            "summary": summary,
            "findings": [each for each in summary["findings"] if each["weight"] != "note"],
            "weights": WEIGHTS,
            "span": span_words(summary["span"]),
            "tiles": _tiles(summary, recent),
            "topology": topology(liveness(tables), tables["links"]) if tables["links"] else None,
            "events": _events(tables),
            "delay": [over_time(recent), _slowest(tables)],
            "overhead": [announcements_block(tables["overhead"]), kinds_block(tables)],
            "brokers": broker_table(tables["brokers"]),
        }
    )
    places = ("title", "span", "summary", "tiles", "topology", "events", "delay", "overhead")
    return {place: str(getattr(made, f"{place}_")()) for place in (*places, "brokers")}


def newest(tables: Tables) -> datetime | None:
    """The time at which the newest record was made, by its broker's clock."""
    return max((row["last"] for row in tables["span"] if row["last"]), default=None)


def _recent(tables: Tables) -> Tables:
    """The last windows only."""
    windows = sorted({row["window_start"] for row in tables["delay_over_time"]})
    kept = set(windows[-WINDOWS_SHOWN:])
    rows = [row for row in tables["delay_over_time"] if row["window_start"] in kept]
    return Tables({**tables.rows, "delay_over_time": rows}, tables.cut)


def _tiles(summary: Mapping[str, Any], recent: Tables) -> list[Tile]:
    load, loss = summary["load"], summary["loss"]
    overall: Row = summary["overhead"]["overall"] or {}
    alive = load["brokers"] - len(load["dead"]) - len(load["stopped"])
    standing = load["links"] - len(load["links_down"])
    cost, bound = overall.get("control_messages_per_announcement"), overall.get("bound_2l")
    return [
        Tile(
            "brokers alive",
            f"{count(alive)} of {count(load['brokers'])}",
            f"down: {', '.join(map(str, load['dead'][:8]))}" if load["dead"] else "none is down",
            "bad" if load["dead"] else "good",
        ),
        Tile(
            "links",
            count(load["links"]),
            "all between the living stand"
            if standing == load["links"]
            else f"{len(load['links_down'])} down between the living",
            "" if standing == load["links"] else "bad",
        ),
        *_delay_tiles(recent),
        Tile(
            "missing",
            count(loss["missing"]),
            f"{count(loss['out_of_order'])} out of order",
            "bad" if loss["missing"] else "good",
        ),
        Tile("control per announcement", ratio(cost), f"messages; the bound is {count(bound)}"),
    ]


def _delay_tiles(recent: Tables) -> list[Tile]:
    """Tiles of the delays in the last window."""
    rows = [
        row
        for row in recent["delay_over_time"]
        if row["quality"] != "flagged" and row["delay_us_p50"] is not None
    ]
    last = max((row["window_start"] for row in rows), default=None)
    of_last = [row for row in rows if row["window_start"] == last]
    if not of_last:
        return [Tile("delay now", duration(None), "nothing crossed")]
    middle = median_low(row["delay_us_p50"] for row in of_last)
    worst = max(of_last, key=lambda row: row["delay_us_p99"])
    way = f"from {worst['origin']} to {worst['destination']}"
    return [
        Tile("delay now, p50", duration(middle), f"middle pair, window of {last:%H:%M:%S} UTC"),
        Tile("delay now, p99", duration(worst["delay_us_p99"]), f"slowest pair, {way}"),
    ]


def _events(tables: Tables) -> list[dict[str, str]]:
    rows = sorted(tables["events"], key=lambda row: row["window_start"], reverse=True)
    return [
        {
            "at": f"{row['window_start']:%H:%M:%S}",
            "mood": "sad" if row["kind"] in _SAD else "glad" if row["kind"] in _GLAD else "plain",
            "text": f"broker {row['broker']}: {words(row['kind'])}{about(row)}",
        }
        for row in rows[:EVENTS_SHOWN]
    ]


def _slowest(tables: Tables) -> Block | None:
    rows = [row for row in delay_rows(tables, "pair") if row["delay_us_p99"] is not None]
    rows.sort(key=lambda row: (row["quality"] == "flagged", -row["delay_us_p99"]))
    return table(
        "Slowest pairs",
        "Over the whole span; what cannot be believed comes last.",
        "delay",
        rows,
        ("way", lambda row: f"{row['origin']} \N{RIGHTWARDS ARROW} {row['destination']}"),
        "p50: delay_us_p50, p99: delay_us_p99, quality",
        shown=PAIRS_SHOWN,
        is_wide=False,
        is_open=True,
    )
