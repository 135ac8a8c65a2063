"""The dashboard's web application: one page, its assets, and what it polls: fragments of HTML.

It reads and never writes, serves files by name from a fixed list only, answers to no foreign host
name (a page elsewhere could otherwise read it through the browser), and lets the browser load
nothing but its own assets. The tables are read again when their files are others.

What is shown of them is drawn here, not in the browser: the same drawings as in the report, the
same escaping, and a script that only puts fragments into their places.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from federator_analytics.dashboard.past import HOURS, newest, past_of_broker, past_of_topic
from federator_analytics.digest.broker import short
from federator_analytics.digest.figures import delay_rows, summarise
from federator_analytics.digest.liveness import liveness
from federator_analytics.digest.tables import (
    NAMES,
    Row,
    Tables,
    held_version,
    part_files,
    read_tables,
)
from federator_analytics.digest.typical import typical_us
from federator_analytics.digest.units import count, duration, ratio, some
from federator_analytics.errors import InputError
from federator_analytics.report.changes import ROUTINE, about, words
from federator_analytics.report.costs import announcements_block, kinds_block
from federator_analytics.report.delay import over_time
from federator_analytics.report.load import broker_table, flows_block, fullest_block
from federator_analytics.report.page import SHARED, WEIGHTS, asset, span_words, templates
from federator_analytics.report.parts import Block, Tile, table
from federator_analytics.report.topology import topology

WINDOWS_SHOWN = 180
"""Windows in the chart of delay: half an hour of 10 s each."""
EVENTS_SHOWN = 40
PAIRS_SHOWN = 10

_SAD = frozenset({"link_down", "broker_down", "agent_stopped", "spool_dropped"})
_GLAD = frozenset({"link_up", "broker_up", "agent_started"})


def fragments(tables: Tables, summary: Mapping[str, Any]) -> Mapping[str, str]:
    """HTML by the id of the element that holds it."""
    recent = _recent(tables)
    page = templates(**{"live.html.j2": asset("live.html.j2", "federator_analytics.dashboard")})
    made = page.get_template("live.html.j2").make_module(
        {
            "summary": summary,
            "findings": [each for each in summary["findings"] if each["weight"] != "note"],
            "weights": WEIGHTS,
            "span": span_words(summary["span"]),
            "tiles": _tiles(summary, recent),
            "topology": topology(liveness(tables), tables["links"]) if tables["links"] else None,
            "loads": [fullest_block(tables), flows_block(tables)],
            "events": _events(tables),
            "delay": [over_time(recent), _slowest(tables)],
            "overhead": [announcements_block(tables["overhead"]), kinds_block(tables)],
            "brokers": broker_table(tables["brokers"]),
        }
    )
    places = ("title", "span", "summary", "tiles", "topology", "events", "delay", "overhead")
    return {place: str(getattr(made, f"{place}_")()) for place in (*places, "brokers")}


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
        Tile.of_bad("missing", loss["missing"], f"{count(loss['under_way'])} under way"),
        Tile("control per announcement", ratio(cost), f"messages; the bound is {count(bound)}"),
    ]


def _delay_tiles(recent: Tables) -> list[Tile]:
    """Tiles of the delays in the last window."""
    rows = [
        row
        for row in recent["delay_over_time"]
        if row["quality"] != "flagged" and row["delay_us_p50"] is not None
    ]
    if not rows:
        return [Tile("delay now", duration(None), "nothing crossed")]
    last, typical = list(typical_us(rows).items())[-1]
    of_last = [row for row in rows if row["window_start"] == last]
    worst = max(of_last, key=lambda row: row["delay_us_p99"])
    way = f"from {worst['origin']} to {worst['destination']}"
    return [
        Tile("delay now, p50", duration(typical), f"typical, window of {last:%H:%M:%S} UTC"),
        Tile("delay now, p99", duration(worst["delay_us_p99"]), f"slowest pair, {way}"),
    ]


def _events(tables: Tables) -> list[dict[str, str]]:
    """The newest events; routine between two others is one line, or nothing else would be seen."""
    rows = sorted(tables["events"], key=lambda row: row["window_start"], reverse=True)
    lines: list[dict[str, str]] = []
    for is_routine, run in groupby(rows, key=lambda row: row["kind"] in ROUTINE):
        told = list(run)
        lines += [_routine(told)] if is_routine and len(told) > 1 else map(_event, told)
        if len(lines) >= EVENTS_SHOWN:
            break
    return lines[:EVENTS_SHOWN]


def _event(row: Row) -> dict[str, str]:
    return {
        "at": f"{row['window_start']:%H:%M:%S}",
        "mood": "sad" if row["kind"] in _SAD else "glad" if row["kind"] in _GLAD else "plain",
        "text": f"broker {row['broker']}: {words(row['kind'])}{about(row)}",
    }


def _routine(told: Sequence[Row]) -> dict[str, str]:
    kinds = Counter(row["kind"] for row in told).most_common()
    named = ", ".join(f"{words(kind)} {count(number)}" for kind, number in kinds)
    where = some(len({row["broker"] for row in told}), "broker")
    since = f"since {told[-1]['window_start']:%H:%M:%S}"
    text = f"routine at {where} {since}: {named}"
    return {"at": f"{told[0]['window_start']:%H:%M:%S}", "mood": "plain", "text": text}


def _slowest(tables: Tables) -> Block | None:
    rows = [row for row in delay_rows(tables, "pair") if row["delay_us_p99"] is not None]
    rows.sort(key=lambda row: (row["quality"] == "flagged", -row["delay_us_p99"]))
    return table(
        "Slowest pairs",
        "Over the whole span; what cannot be believed comes last.",
        "delay",
        rows,
        (
            "way",
            lambda row: f"{short(row['origin'])} \N{RIGHTWARDS ARROW} {short(row['destination'])}",
        ),
        "p50: delay_us_p50, p99: delay_us_p99, quality",
        shown=PAIRS_SHOWN,
        is_wide=False,
        is_open=True,
    )


Fingerprint = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """The tables as last read whole, and what is shown of them.

    ``version`` counts changes; ``summary`` is as a report's. ``written_ns`` is when the newest file
    was written, 0 when there is none. ``trouble`` says why these are not what is on disk now; empty
    when they are.
    """

    tables: Tables
    summary: Mapping[str, Any]
    fragments: Mapping[str, str]
    version: int
    written_ns: int
    trouble: str

    @classmethod
    def of(cls, tables: Tables, version: int, written_ns: int) -> "Seen":
        """``tables`` as they are on disk."""
        summary = summarise(tables)
        return cls(tables, summary, fragments(tables, summary), version, written_ns, "")


class Watcher:
    """Reads one folder of report tables, again when they changed. For one thread at a time.

    Whoever writes the tables may do so at any moment, so what is found half written is no error:
    the picture of a moment ago stays, with a word of what is wrong, and the next reading may find
    it whole.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: Fingerprint | None = None
        self._seen = Seen.of(Tables({}), 0, 0)

    def read(self) -> Seen:
        """What is there now, or what was there last with ``trouble``. Blocks while it reads."""
        try:
            with held_version(self._folder) as home:
                before = _fingerprint(home)
                if before == self._known and not self._seen.trouble:
                    return self._seen
                tables = read_tables(home)
                if before != _fingerprint(home):  # nobody switches these
                    raise InputError("the tables are being replaced")
            if self._known and not before:
                raise InputError("the tables are gone")
        except (InputError, OSError) as error:
            self._seen = replace(self._seen, trouble=str(error)[:300])
            return self._seen
        newest_ns = max((written_ns for _, written_ns, _ in before), default=0)
        self._seen = Seen.of(tables, self._seen.version + 1, newest_ns)
        self._known = before
        return self._seen


def _fingerprint(home: Path) -> Fingerprint:
    """Name, time and size of every file of a version of the tables."""
    found = []
    for name in NAMES:
        for path in part_files(home / name):
            stat = path.stat()
            found.append((str(path), stat.st_mtime_ns, stat.st_size))
    return tuple(found)


LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
LOOK_AGAIN_S = 0.5
"""The folder is looked at no more often, however many browsers ask."""
ANSWER_S = 1.0
"""An answer waits so long for tables that are being read; then it is what was read last."""
PASTS_KEPT = 64
"""Answers about the last hours that are remembered as long as the tables are the same."""
ABOUT_MAX = 1_024
"""Characters of a topic that is asked about."""
DIGITS_MAX = 16
"""Of a broker's id."""

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_ASSETS = {
    "theme.css": (SHARED, "text/css"),
    "theme.js": (SHARED, "text/javascript"),
    "report.css": ("federator_analytics.report", "text/css"),
    "report.js": ("federator_analytics.report", "text/javascript"),
    "dashboard.css": ("federator_analytics.dashboard", "text/css"),
    "dashboard.js": ("federator_analytics.dashboard", "text/javascript"),
}


class Live:
    """What is shown now. One reading at a time, off the event loop."""

    def __init__(self, folder: Path, now_s: Callable[[], float]) -> None:
        self._watcher = Watcher(folder)
        self._now_s = now_s
        self._seen = replace(Seen.of(Tables({}), 0, 0), trouble="the tables are being read")
        self._reading: asyncio.Task[Seen] | None = None
        self._looked_s = 0.0
        self._lock = asyncio.Lock()
        self._pasts: dict[tuple[str, int], dict[str, object]] = {}
        self._pasts_of = 0  # the version that these are of

    async def _look(self, wait_s: float | None) -> Seen:
        """What is there; what was there last, if that takes longer to read than ``wait_s``."""
        self._take()
        if self._reading is None and abs(self._now_s() - self._looked_s) >= LOOK_AGAIN_S:
            self._looked_s = self._now_s()
            self._reading = asyncio.create_task(asyncio.to_thread(self._watcher.read))
        if self._reading is not None:
            await asyncio.wait({self._reading}, timeout=wait_s)
            self._take()
        return self._seen

    def _take(self) -> None:
        if self._reading is not None and self._reading.done():
            reading, self._reading = self._reading, None
            self._seen = reading.result()

    async def past(self, broker: int | None, topic: str, hours: int) -> dict[str, object]:
        """What the tables hold of a broker or, without one, a topic."""
        seen = await self._look(ANSWER_S if self._seen.version else None)
        async with self._lock:
            if seen.version != self._pasts_of or len(self._pasts) >= PASTS_KEPT:
                self._pasts.clear()
                self._pasts_of = seen.version
            key = f"broker {broker}" if broker is not None else f"topic {topic}", hours
            if key not in self._pasts:
                tell = (
                    partial(past_of_topic, seen.tables, topic, hours)
                    if broker is None
                    else partial(past_of_broker, seen.tables, broker, hours)
                )
                self._pasts[key] = await asyncio.to_thread(tell)
            return self._pasts[key] | {"trouble": seen.trouble}

    async def answer(self, known: str) -> dict[str, object]:
        """The state, with fragments unless the browser has this version."""
        seen = await self._look(ANSWER_S)
        at = newest(seen.tables)
        version = str(seen.version)
        state: dict[str, object] = {
            "version": version,
            "now_ms": round(self._now_s() * 1_000),
            "newest_ms": round(at.timestamp() * 1_000) if at else None,
            "written_ms": seen.written_ns // 1_000_000,
            "trouble": seen.trouble,
            "verdict": seen.summary["verdict"],
            "loss": seen.summary["loss"],
        }
        return state if known == version else state | {"fragments": seen.fragments}


async def _safely(request: Request, answer: RequestResponseEndpoint) -> Response:
    """Adds the headers that keep the browser from loading anything foreign."""
    response = await answer(request)
    response.headers.update(_HEADERS)
    return response


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX


def _unclear(reason: str) -> Response:
    return JSONResponse({"error": reason}, status_code=400)


def application(
    folder: Path,
    *,
    names: tuple[str, ...] = LOOPBACK_NAMES,
    stale_after_s: float,
    now_s: Callable[[], float],
    console: str = "",
) -> Starlette:
    """The dashboard over the tables in ``folder``.

    Args:
        folder: Report tables, which may be replaced at any moment, or not be there yet.
        names: Host names it answers to; ``"*"`` for any.
        stale_after_s: Records older than this make the page say that it is stale.
        now_s: The wall clock, in seconds since 1970.
        console: Where the live page of `federator console` is, for a link; empty for none.
    """
    live = Live(folder, now_s)
    text = asset("dashboard.html.j2", "federator_analytics.dashboard")
    page = (
        Environment(autoescape=True)
        .from_string(text)
        .render(stale_after_s=stale_after_s, console=console)
    )

    async def show(request: Request) -> Response:
        return HTMLResponse(page)

    async def tell(request: Request) -> Response:
        return JSONResponse(await live.answer(request.query_params.get("known", "")))

    async def tell_past(request: Request) -> Response:
        asked = request.query_params
        broker, topic, hours = asked.get("broker"), asked.get("topic", ""), asked.get("hours", "1")
        if hours not in map(str, HOURS):
            return _unclear(f"hours: one of {', '.join(map(str, HOURS))} wanted")
        if (broker is None) != bool(topic) or len(topic) > ABOUT_MAX:
            return _unclear(f"broker, or topic of at most {ABOUT_MAX} characters wanted")
        if broker is not None and not _is_id(broker):
            return _unclear("broker: an id wanted")
        about = None if broker is None else int(broker)
        return JSONResponse(await live.past(about, topic, int(hours)))

    async def give(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _ASSETS:
            return Response("no such file\n", status_code=404, media_type="text/plain")
        package, media_type = _ASSETS[name]
        return Response(asset(name, package), media_type=media_type)

    return Starlette(
        routes=[
            Route("/", show),
            Route("/live", tell),
            Route("/history", tell_past),
            Route("/assets/{name}", give),
        ],
        middleware=[
            Middleware(BaseHTTPMiddleware, dispatch=_safely),
            Middleware(TrustedHostMiddleware, allowed_hosts=list(names)),
        ],
    )
