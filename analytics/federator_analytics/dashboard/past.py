"""What the tables hold of one broker or one topic over the last hours, as JSON for other programs.

The live console of a federation asks for it. Of time only the table ``delay_over_time`` and events
tell; the rest is of the whole span of the tables. Instants are milliseconds since 1970, and the
last hours end with the newest record, not now: ``newest_ms`` says how long ago that was.

Source: docs/analytics.md, "The dashboard".
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from federator.protocol.filters import matches, without_share
from federator_analytics.digest.tables import Row, Tables
from federator_analytics.report.changes import ROUTINE, about, words
from federator_analytics.schemas.reports import WINDOW_S

VERSION = 1
"""Grows when a key goes or changes its meaning; new keys may come without."""
HOURS = (1, 6, 24)
"""Spans that can be asked for."""
POINTS_MAX = 288
EVENTS_MAX = 100
FLOWS_MAX = 100
TEXT_MAX = 300
"""Characters of a filter or an event: clients choose filters, up to 65,535 of them."""

Answer = dict[str, Any]


def newest(tables: Tables) -> datetime | None:
    """The time at which the newest record was made, by its broker's clock."""
    return max((row["last"] for row in tables["span"] if row["last"]), default=None)


def past_of_broker(tables: Tables, broker: int, hours: int) -> Answer:
    """What went out of and came in at ``broker``, how long it took, and what happened there."""
    end_ms, step_ms, points = _points(tables, hours)
    sent: list[float | None] = [None] * points
    received, delay_ms = sent.copy(), sent.copy()
    for row in tables["delay_over_time"]:
        here = row["origin"] == broker, row["destination"] == broker
        at = points - 1 - (end_ms - _ms(row["window_start"])) // step_ms
        if not any(here) or not 0 <= at < points:
            continue
        for series, is_its in zip((sent, received), here, strict=True):
            if is_its:
                series[at] = (series[at] or 0) + row["publications"] * 1_000 / step_ms
        if row["quality"] != "flagged" and row["delay_us_p99"] is not None:
            delay_ms[at] = max(delay_ms[at] or 0, row["delay_us_p99"] / 1_000)
    whole = next((row for row in tables["brokers"] if row["broker"] == broker), None)
    facts = ("restarts", "dropped", "delivered", "publications_in", "loop_lag_us_max")
    return _answer(
        tables,
        step_ms=step_ms,
        series={"sent": sent, "received": received, "delay_ms_p99": delay_ms},
        events=_events(tables, hours, lambda row: broker in (row["broker"], row["neighbour"])),
        facts={} if whole is None else {name: whole[name] for name in facts},
    )


def past_of_topic(tables: Tables, topic: str, hours: int) -> Answer:
    """What was carried for filters that ``topic`` is, or matches, and what happened to these."""

    def is_its(name: str | None) -> bool:
        return name is not None and (name == topic or _takes(name, topic))

    missing = {
        (row["filter"], row["origin"], row["destination"]): row["missing"]
        for row in tables["loss"]
        if is_its(row["filter"])
    }
    flows = [row for row in tables["traffic_matrix"] if is_its(row["filter"])]
    flows.sort(key=lambda row: (-row["publications"], row["origin"], row["destination"]))
    told = [
        {
            "filter": row["filter"][:TEXT_MAX],
            "origin": int(row["origin"]),
            "destination": int(row["destination"]),
            "publications": row["publications"],
            "rate_per_s": row["rate_per_s"],
            "missing": missing.get((row["filter"], row["origin"], row["destination"]), 0),
        }
        for row in flows[:FLOWS_MAX]
    ]
    events = _events(tables, hours, lambda row: is_its(row["filter"]))
    return _answer(tables, flows=told, flows_total=len(flows), events=events)


def _takes(filter_: str, topic: str) -> bool:
    return matches(without_share(filter_), topic)


def _answer(tables: Tables, **parts: Any) -> Answer:  # noqa: ANN401
    at = newest(tables)
    cut = tables.cut.keys() & {"delay_over_time", "events", "traffic_matrix"}
    since = max((told for name in cut if (told := tables.cut[name])), default=None)
    answer: Answer = {"version": VERSION, "newest_ms": None if at is None else _ms(at)}
    answer |= {"cut": bool(cut), "whole_since_ms": None if since is None else _ms(since)}
    return answer | parts


def _points(tables: Tables, hours: int) -> tuple[int, int, int]:
    """When the last point ends and how long each is, in milliseconds; and how many there are."""
    windows = -(-hours * 3_600 // (WINDOW_S * POINTS_MAX))
    step_ms = windows * WINDOW_S * 1_000
    last = max((_ms(row["window_start"]) for row in tables["delay_over_time"]), default=0)
    return last, step_ms, hours * 3_600_000 // step_ms


def _events(tables: Tables, hours: int, is_its: Callable[[Row], bool]) -> list[Answer]:
    """The newest first; what is not routine is told first."""
    at = newest(tables)
    since_ms = 0 if at is None else _ms(at) - hours * 3_600_000
    found = [row for row in tables["events"] if is_its(row) and _ms(row["window_start"]) > since_ms]
    found.sort(key=lambda row: (row["kind"] not in ROUTINE, row["window_start"]), reverse=True)
    return [_event(row) for row in _newest(found[:EVENTS_MAX])]


def _newest(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row["window_start"], reverse=True)


def _event(row: Row) -> Answer:
    return {
        "at_ms": _ms(row["window_start"]),
        "broker": int(row["broker"]),
        "text": f"{words(row['kind'])}{about(row)}"[:TEXT_MAX],
        "routine": row["kind"] in ROUTINE,
    }


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1_000)
