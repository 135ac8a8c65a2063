"""The console's pages: what anyone may see, and what only operators may order.

Anyone who reaches the console may look. Orders require a session: its random token in a cookie that
is sent to no other site, and the same token in a header, which only our own page can read. Files
are served by name from a fixed list; the browser may load nothing but these, and no address
outside.

Source: docs/console.md; docs/security.md.
"""

import json
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from importlib.resources import files
from typing import Final

import structlog
from msgspec import to_builtins
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from federator.config.all_brokers.console import ConsoleSettings
from federator.console.answers import Explained, MeshPart, read_answer
from federator.console.crowd import Answerer, Crowd
from federator.console.dashboard import Dashboard
from federator.console.guard import (
    SESSION,
    Guarded,
    RefusedError,
    address_of,
    body_of,
    operator_of,
    refused,
    same_site,
    token_of,
)
from federator.console.metrics import CONSOLE
from federator.console.observer import Observer
from federator.console.operators import NAME, Operators
from federator.console.searches import Searches
from federator.console.stream import EventStream, Pulse, events_for_page
from federator.errors import ConfigError, DecodeError, LinkError
from federator.protocol.bounded_cache import Recent
from federator.protocol.filters import validate_filter, validate_topic
from federator.protocol.types import BROKER_ID_MAX, BrokerId
from federator.runtime.process import scrape
from federator.runtime.process.clocks import monotonic_ms, wall_clock_ms
from federator.runtime.process.exposition import build_info, families

TEXT_MAX: Final = 1_024
TRACE_S: Final = 5.0
HOURS_OF_SPAN: Final = {"300": "1", "3600": "1", "21600": "6", "86400": "24"}
"""The time ranges that can be asked for, in seconds, and the dashboard's for each of them."""
TEXTS_KEPT: Final = 8
"""Cached texts for pages that have seen the same state: many such pages cost as much as one."""

BADGE: Final = "federator_console_badge"
BADGE_S: Final = 90 * 86_400
"""How long a browser keeps it."""

ASSETS: Final = {
    "theme.css": "text/css",
    "theme.js": "text/javascript",
    "console.css": "text/css",
    "console.js": "text/javascript",
    "chart.js": "text/javascript",
    "parts.js": "text/javascript",
    "closer.js": "text/javascript",
    "map.js": "text/javascript",
    "cytoscape.min.js": "text/javascript",
    "cytoscape.LICENSE": "text/plain",
}

_log = structlog.get_logger()


def asset(name: str) -> bytes:
    """Read one of our files. ``name`` is ours, never a client's."""
    return files("federator.console").joinpath("assets", name).read_bytes()


class Console:
    """What the page asks for.

    Args:
        pulse: Given when something changed; ended when we stop.
        ready: Whether anything can be read, and the reason if not.
    """

    def __init__(
        self,
        settings: ConsoleSettings,
        observer: Observer,
        pulse: Pulse,
        ready: Callable[[], tuple[bool, str]],
    ) -> None:
        self._settings = settings
        self._observer = observer
        self._pulse = pulse
        self._ready = ready
        self._operators = Operators(settings.operators)
        self._searches = Searches(observer)
        self._crowd = Crowd(settings.http.browsers_max)
        self._dashboard = Dashboard(settings.history_source or settings.history)
        self._texts: Recent[tuple[object, ...], str] = Recent(TEXTS_KEPT)

    def application(self) -> Starlette:
        http = self._settings.http
        names = frozenset(name.lower() for name in (*http.names, http.host, socket.gethostname()))
        pages: list[tuple[str, Callable[[Request], Awaitable[Response]], str]] = [
            ("/", self.show, "GET"),
            ("/assets/{name}", self.give, "GET"),
            ("/healthz", self.live, "GET"),
            ("/readyz", self.readiness, "GET"),
            ("/metrics", self.metrics, "GET"),
            ("/live", self.stream, "GET"),
            ("/api/me", self.me, "GET"),
            ("/api/past", self.past, "GET"),
            ("/api/clients", self.clients, "GET"),
            ("/api/search", self.search, "GET"),
            ("/api/explain", self.explain, "GET"),
            ("/api/mesh", self.mesh, "GET"),
            ("/api/trace", self.trace, "GET"),
            ("/api/sign-in", self.sign_in, "POST"),
            ("/api/sign-out", self.sign_out, "POST"),
            ("/api/drain", self.drain, "POST"),
        ]
        return Starlette(
            routes=[Route(path, page, methods=[method]) for path, page, method in pages],
            middleware=[Middleware(Guarded, names=names)],
            exception_handlers={
                RefusedError: refused,
                LinkError: _unanswered,
                DecodeError: _unanswered,
            },
        )

    # -- for anyone ------------------------------------------------------------------------------

    async def show(self, request: Request) -> Response:
        """The page."""
        return Response(asset("console.html"), media_type="text/html")

    async def give(self, request: Request) -> Response:
        """A file of the page."""
        name = request.path_params["name"]
        if name not in ASSETS:
            raise RefusedError(404, "no such file")
        return Response(asset(name), media_type=ASSETS[name])

    async def live(self, request: Request) -> Response:
        return PlainTextResponse("alive\n")

    async def readiness(self, request: Request) -> Response:
        """Whether some broker can be read."""
        ready, reason = self._ready()
        return PlainTextResponse(f"{reason}\n", 200 if ready else 503)

    async def metrics(self, request: Request) -> Response:
        """The metrics for Prometheus."""
        observer = self._observer
        age_ms = observer.picture.age_ms(monotonic_ms())
        record = {
            **observer.picture.counts(),
            "ready": int(self._ready()[0]),
            "crowd": self._crowd,
            "observer": observer,
            "malformed": observer.connections.malformed + observer.unclear,
            "words_refused": sum(observer.words.refused.values()),
            "operators": self._operators,
            "dashboard": self._dashboard,
            "snapshot_age": None if age_ms is None else age_ms / 1_000,
        }
        text = scrape.text((*build_info(), *families(CONSOLE, record)))
        return Response(text, media_type=scrape.CONTENT_TYPE)

    async def stream(self, request: Request) -> Response:
        """Stream the picture, and its changes."""
        address = address_of(request)
        if not self._crowd.enter(address):
            raise RefusedError(503, "too many pages are open: see http.browsers_max")
        leave = partial(self._crowd.leave, address)
        return EventStream(events_for_page(self._pulse, self._changes), on_end=leave)

    def _changes(self, seen: dict[str, int]) -> str:
        picture, events = self._observer.picture, self._observer.events
        number = seen.get("number", 0)
        version, generation = seen.get("version", 0), seen.get("generation", 0)
        now_ms = wall_clock_ms()
        key = (version, generation, number, picture.version, events.number, now_ms // 1_000)
        text = self._texts.get(key)
        if text is None:
            ready, reason = self._ready()
            changes = picture.since(version, generation)
            changes |= {"events": events.since(number), "now_ms": now_ms}
            changes |= {"ready": ready, "reason": reason, "left_out": picture.left_out}
            text = json.dumps(changes, separators=(",", ":"))
            self._texts.put(key, text)
        seen |= {"version": picture.version, "generation": picture.generation}
        seen["number"] = events.number
        return text

    async def me(self, request: Request) -> Response:
        """The signed-in operator, and what else the page must know."""
        return self._me(token_of(request))

    def _me(self, token: str) -> Response:
        operator = self._whose(token)
        return JSONResponse(
            {
                "federation": self._settings.federation,
                "operator": operator,
                "token": token if operator else None,
                "may_sign_in": self._operators.any,
                "history": self._settings.history,
                "past": bool(self._dashboard.url),
                "streams": not self._observer.words.judges,
            }
        )

    async def past(self, request: Request) -> Response:
        """What the tables of analytics hold about a broker or a topic, over the last hours."""
        self._take_question(request, "us")
        hours = _hours(request)
        if "broker" in request.query_params:
            about = {"broker": str(_broker(request.query_params["broker"]))}
        else:
            about = {"topic": _text(request, "topic")}
        return JSONResponse(await self._dashboard.past(**about, hours=hours))

    async def clients(self, request: Request) -> Response:
        """The first of the clients that the agent of a broker knows."""
        broker = _broker(request.query_params.get("broker"))
        self._take_question(request, "agents")
        return JSONResponse(await self._searches.at(broker))

    async def search(self, request: Request) -> Response:
        """Clients that publish or subscribe, and filters, by a part of the text."""
        return JSONResponse(await self._searches.everywhere(self._question_text(request, "text")))

    async def explain(self, request: Request) -> Response:
        """Where a publication on a topic goes from a broker, and why."""
        topic = _valid(validate_topic, self._question_text(request, "topic"))
        answer = await self._observer.ask(self._any_broker(request), "explain", topic)
        return JSONResponse(to_builtins(read_answer(Explained, answer)))

    async def mesh(self, request: Request) -> Response:
        """Each agent's part in the mesh of a filter; malformed answers are left out."""
        filter_ = _valid(validate_filter, self._question_text(request, "filter"))
        answers = await self._observer.read_all(MeshPart, "mesh", filter_)
        parts = {str(broker): to_builtins(part) for broker, part in answers.items()}
        return JSONResponse({"filter": filter_, "parts": parts})

    async def trace(self, request: Request) -> Response:
        """Send a probe along the way of a topic from a broker, and return each hop."""
        topic = _valid(validate_topic, self._question_text(request, "topic"))
        broker = self._any_broker(request)
        journey = await self._observer.trace(broker, topic, wait_s=TRACE_S)
        return JSONResponse(
            {
                "start": to_builtins(journey.start),
                "hops": [to_builtins(hop) for hop in journey.came.values()],
                "missing": journey.waited_for,
            }
        )

    def _question_text(self, request: Request, name: str) -> str:
        """The text asked about, if one more question to agents is allowed."""
        text = _text(request, name)
        self._take_question(request, "agents")
        return text

    def _take_question(self, request: Request, answerer: Answerer) -> None:
        """Refuse a question beyond the limit of ``answerer``."""
        if not self._crowd.may_ask(answerer, address_of(request), monotonic_ms()):
            raise RefusedError(429, "too many questions: try again in a second")

    def _any_broker(self, request: Request) -> BrokerId:
        """The named broker, or the first one with an answering agent."""
        if "broker" in request.query_params:
            return _broker(request.query_params["broker"])
        picture = self._observer.picture
        answering = (b for b in picture.brokers() if picture.state(b) in ("ready", "draining"))
        broker = next(answering, None)
        if broker is None:
            raise RefusedError(503, "no agent can be asked")
        return broker

    # -- for operators ---------------------------------------------------------------------------

    async def sign_in(self, request: Request) -> Response:
        """Begin a session, for an operator's name and password."""
        same_site(request)
        body = await body_of(request)
        name, password = str(body.get("name", "")), str(body.get("password", ""))
        if not self._operators.any:
            raise RefusedError(403, "nobody can sign in here: operators.file is not named")
        try:
            badge = request.cookies.get(BADGE, "")
            if not self._operators.may_try(address_of(request), name, badge, monotonic_ms()):
                _log.warning("console.sign_in_too_often")
                raise RefusedError(429, "too many attempts: wait a minute")
            is_operator = await self._operators.is_one(name, password)
        except ConfigError as error:
            _log.error("console.operators_unusable", reason=str(error))
            raise RefusedError(503, "the file of operators cannot be used: see the log") from None
        if not is_operator:
            shown = name if NAME.fullmatch(name) else "?"
            _log.warning("console.sign_in_refused", operator=shown)
            raise RefusedError(403, "no such name, or a wrong password")
        self._operators.end(token_of(request))
        token = self._operators.begin(name, monotonic_ms())
        _log.info("console.signed_in", operator=name)
        answer = self._me(token)
        for cookie, value, path, max_age_s in (
            (SESSION, token, "/", self._settings.operators.session_s),
            (BADGE, self._operators.badge(name), "/api/sign-in", BADGE_S),
        ):
            answer.set_cookie(
                cookie,
                value,
                max_age=max_age_s,
                path=path,
                secure=self._settings.http.behind_tls,
                httponly=True,
                samesite="strict",
            )
        return answer

    async def sign_out(self, request: Request) -> Response:
        """End the session."""
        same_site(request)
        self._operators.end(token_of(request))
        answer = self._me("")
        answer.delete_cookie(SESSION)
        return answer

    async def drain(self, request: Request) -> Response:
        """Move a broker's clients away, or let them return."""
        operator = operator_of(request, self._whose)
        body = await body_of(request)
        broker, draining = _broker(body.get("broker")), body.get("drain")
        if not isinstance(draining, bool):
            raise RefusedError(400, "drain: true or false wanted")
        _log.warning("console.drain", operator=operator, broker=broker, drain=draining)
        await self._observer.drain(broker, draining=draining)
        return JSONResponse({"broker": broker, "draining": draining})

    def _whose(self, token: str) -> str | None:
        return self._operators.whose(token, monotonic_ms())


def _text(request: Request, name: str) -> str:
    text = request.query_params.get(name, "")
    if not text or len(text) > TEXT_MAX:
        raise RefusedError(400, f"{name}: 1 to {TEXT_MAX} characters wanted")
    return text


def _hours(request: Request) -> str:
    hours = HOURS_OF_SPAN.get(request.query_params.get("span", "3600"))
    if hours is None:
        raise RefusedError(400, f"span: one of {', '.join(HOURS_OF_SPAN)} wanted")
    return hours


def _broker(given: object) -> BrokerId:
    text = str(given)
    if not text.isascii() or not text.isdecimal() or int(text) > BROKER_ID_MAX:
        raise RefusedError(400, "broker: an id wanted")
    return BrokerId(int(text))


def _valid(validate: Callable[[str], str], text: str) -> str:
    try:
        return validate(text)
    except ValueError as error:
        raise RefusedError(400, str(error)[:200]) from None


async def _unanswered(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 502)
