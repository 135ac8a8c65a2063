"""The chapter on what happened: events, and how long the federation took to settle after them."""

from typing import Any

from analytics.digest.tables import Row, Tables
from analytics.digest.units import count, duration, some
from analytics.report import vega
from analytics.report.parts import Block, Section, Tile, grid, table
from analytics.report.vega import SMALL, WIDE, Spec, draw

MARKS_MAX = 1_000
"""Events drawn; more would be one grey bar."""


def convergence_section(tables: Tables, summary: dict[str, Any]) -> Section:
    """Events on a line of time, and the time from a change to the last event it caused."""
    figures = summary["convergence"]
    slowest = max(figures["by_what"], key=lambda row: row["max_us"], default=None)
    tiles = [
        Tile("events", count(sum(figures["events"].values()))),
        Tile("times it had to settle", count(figures["times"])),
        Tile(
            "slowest to settle",
            duration(figures["max_us"]),
            f"after {words(slowest['what'])}" if slowest else "",
        ),
    ]
    newest = sorted(tables["events"], key=lambda row: row["window_start"], reverse=True)
    event_table = table(
        "Events",
        "The newest first.",
        "events",
        newest,
        "time (UTC): window_start, broker",
        ("what", lambda row: words(row["kind"])),
        "neighbour, filter, about: subject, detail",
    )
    return Section(
        "convergence",
        "Changes and failover",
        "What changed while the federation ran, and how long it took until everyone had settled on "
        "the new picture.",
        [_timeline(tables), _settling(tables), event_table],
        tiles,
        absent="" if tables["events"] else "Nothing changed: no event was reported.",
    )


def words(kind: str) -> str:
    """``link_down`` as ``link down``."""
    return kind.replace("_", " ")


def _timeline(tables: Tables) -> Block | None:
    events = sorted(tables["events"], key=lambda row: row["window_start"])
    if not events:
        return None
    data = [
        {
            "at": f"{event['window_start']:%Y-%m-%dT%H:%M:%S.%fZ}",
            "kind": words(event["kind"]),
            "tip": f"{event['window_start']:%H:%M:%S} UTC, broker {event['broker']}: "
            f"{words(event['kind'])}{about(event)}",
        }
        for event in events[:MARKS_MAX]
    ]
    span = events[-1]["window_start"] - events[0]["window_start"]
    spec: Spec = {
        "mark": {"type": "tick", "thickness": 2, "color": vega.BLUE, "height": {"band": 0.7}},
        "encoding": {
            "x": vega.time_axis(span.total_seconds()),
            "y": vega.named("kind", axis={"grid": True}),
            **vega.TIP,
        },
    }
    label = "Events by kind on a line of time"
    height = max(80, 26 * len({event["kind"] for event in events}))
    return Block(
        "What happened when",
        "One mark per event, by kind.",
        draw(spec, data, label, width=WIDE, height=height),
        draw(spec, data, label, width=SMALL, height=height),
        is_wide=True,
    )


def about(event: Row) -> str:
    """What an event says beside its kind, in parentheses."""
    parts = [
        f"neighbour {event['neighbour']}" if event["neighbour"] is not None else "",
        f"broker {event['subject']}" if event["subject"] is not None else "",
        event["filter"] or "",
        event["detail"] or "",
    ]
    told = ", ".join(part for part in parts if part)
    return f" ({told})" if told else ""


def _settling(tables: Tables) -> Block | None:
    rows = sorted(tables["convergence"], key=lambda row: row["started"])
    if not rows:
        return None
    divisor, unit = vega.time_unit(max(row["duration_us"] for row in rows))
    data = [
        {
            "what": words(row["what"]),
            "value": row["duration_us"] / divisor,
            "tip": f"{words(row['what'])} at {row['started']:%H:%M:%S}: settled in "
            f"{duration(row['duration_us'])}, {some(row['brokers'], 'broker')}",
        }
        for row in rows
    ]
    spec: Spec = {
        "mark": {"type": "point", "size": 80, "opacity": 0.7, "color": vega.VERMILION},
        "encoding": {
            "x": vega.measured("value", title=unit, axis={"tickCount": 4}),
            "y": vega.named("what"),
            **vega.TIP,
        },
    }
    height = max(70, 30 * len({row["what"] for row in rows}))
    return Block(
        "Time to settle",
        "One point per change: from its first event to the last that it caused.",
        draw(spec, data, "Time to settle after each change", width=SMALL, height=height),
        grid=grid(
            "convergence",
            sorted(rows, key=lambda row: -row["duration_us"]),
            ("what", lambda row: words(row["what"])),
            "started (UTC): started, settled (UTC): settled, took: duration_us, brokers",
        ),
    )
