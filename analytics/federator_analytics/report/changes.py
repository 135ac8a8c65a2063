"""The chapter on what happened: events, and how long the federation took to settle after them.

Nearly all events are routine: parents and meshes that move because something else happened. They
are counted, so that what an operator looks for stands alone; and none is left out unsaid.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from federator_analytics.digest.tables import Row, Tables
from federator_analytics.digest.units import count, duration, some
from federator_analytics.report import vega
from federator_analytics.report.parts import Block, Section, Tile, grid, table, whole_since
from federator_analytics.report.vega import SMALL, WIDE, Spec, draw

ROUTINE = frozenset({"parent_changed", "core_changed", "mesh_joined", "mesh_left"})
"""Kinds of events that follow from others."""
MARKS = 160
"""Marks of one kind on the line of time, at most: events closer than that share one."""
KINDS_SHOWN = 24


def convergence_section(tables: Tables, summary: dict[str, Any]) -> Section:
    """Events on a line of time, and the time from a change to the last event it caused."""
    figures = summary["convergence"]
    slowest = max(figures["by_what"], key=lambda row: row["max_us"], default=None)
    tiles = [
        Tile(
            "events",
            count(sum(figures["events"].values())),
            f"{count(sum(figures['events'].get(kind, 0) for kind in ROUTINE))} of them routine",
        ),
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
        "The newest first; what is routine is counted beside.",
        "events",
        [row for row in newest if row["kind"] not in ROUTINE],
        "time (UTC): window_start, broker",
        ("what", lambda row: words(row["kind"])),
        "neighbour, filter, about: subject, detail",
    )
    return Section(
        "convergence",
        "Changes and failover",
        "What changed while the federation ran, and how long it took until everyone had settled on "
        "the new picture.",
        [timeline(tables), _settling(tables), event_table, _routine(newest)],
        tiles,
        absent="" if tables["events"] else "Nothing changed: no event was reported.",
    )


def words(kind: str) -> str:
    """``link_down`` as ``link down``."""
    return kind.replace("_", " ")


def timeline(tables: Tables) -> Block | None:
    """All events on a line of time: the rarest kinds first, routine last."""
    events = tables["events"]
    if not events:
        return None
    counts = Counter(event["kind"] for event in events)
    kinds = sorted(counts, key=lambda kind: (kind in ROUTINE, counts[kind], kind))
    label = {kind: f"{words(kind)} ({count(counts[kind])})" for kind in kinds[:KINDS_SHOWN]}
    first = min(event["window_start"] for event in events)
    span = max(event["window_start"] for event in events) - first
    step = span / MARKS
    marks: defaultdict[tuple[str, int], list[Row]] = defaultdict(list)
    for event in events:
        if event["kind"] in label:
            at = (event["window_start"] - first) // step if step else 0
            marks[event["kind"], at].append(event)
    data = [_mark(label[kind], told) for (kind, _), told in sorted(marks.items())]
    most = max(mark["events"] for mark in data)
    spec: Spec = {
        "mark": {"type": "tick", "thickness": 2, "color": vega.BLUE, "height": {"band": 0.7}},
        "encoding": {
            "x": vega.time_axis(span.total_seconds()),
            "y": vega.named("kind", axis={"grid": True}, sort=list(label.values())),
            "opacity": vega.measured(
                "events", legend=None, scale={"domain": [1, max(most, 2)], "range": [0.6, 1]}
            ),
            **vega.TIP,
        },
    }
    shared = f" Events of a kind within {duration(step.total_seconds() * 1e6)} share a darker mark."
    left = sum(counts[kind] for kind in kinds[KINDS_SHOWN:])
    left_out = f" Left out: {some(left, 'event')} of {some(len(kinds) - KINDS_SHOWN, 'more kind')}."
    about_it = "Events by kind on a line of time"
    height = max(80, 26 * len(label))
    return Block(
        "What happened when",
        "The rarest kinds first; what follows from others (parents, cores and meshes that move) "
        "last."
        + (shared if most > 1 and step else "")
        + (left_out if left else "")
        + whole_since(tables, "events"),
        draw(spec, data, about_it, width=WIDE, height=height),
        draw(spec, data, about_it, width=SMALL, height=height),
        is_wide=True,
    )


def _mark(kind: str, told: list[Row]) -> dict[str, Any]:
    """One mark, of events of a kind that are close together."""
    first, last = (pick(row["window_start"] for row in told) for pick in (min, max))
    what = words(told[0]["kind"])
    if len(told) == 1:
        tip = f"{first:%H:%M:%S} UTC, broker {told[0]['broker']}: {what}{about(told[0])}"
    else:
        brokers = len({row["broker"] for row in told})
        tip = f"{first:%H:%M:%S} to {last:%H:%M:%S} UTC, {some(brokers, 'broker')}: "
        tip += f"{what}, {count(len(told))} times"
    at = f"{first:%Y-%m-%dT%H:%M:%S.%fZ}"
    return {"at": at, "kind": kind, "events": len(told), "tip": tip}


def _routine(newest: Sequence[Row]) -> Block | None:
    """How often what follows from others happened, and where."""
    told: defaultdict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in newest:
        if row["kind"] in ROUTINE:
            told[row["kind"], row["broker"]].append(row)
    rows = [
        {
            "what": words(kind),
            "broker": broker,
            "events": len(found),
            "first": found[-1]["window_start"],
            "last": found[0]["window_start"],
        }
        for (kind, broker), found in told.items()
    ]
    return table(
        "Routine",
        "Parents, cores and meshes that moved, by broker; the most first. Each one is in the table "
        "events beside this page.",
        "events",
        sorted(rows, key=lambda row: (-row["events"], row["what"], row["broker"])),
        "what, broker, events, first (UTC): first, last (UTC): last",
        is_wide=False,
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
