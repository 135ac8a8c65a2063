"""The console's pages: what strangers may see, and what only operators may order.

Everybody who reaches it may look. Orders take a session: a cookie signed by a key that is drawn at
each start, sent to no other site, and beside it a token that only our own page can read. Files are
served by name from a fixed list; the browser may load nothing but these, and no address outside.

Source: docs/console.md; docs/security.md.
"""

import hmac
import json
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any, Final
from urllib.parse import urlsplit

import structlog
from msgspec import to_builtins
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from federator.config.all_brokers.console import ConsoleSettings
from federator.console.observer import Observer
from federator.console.operators import NAME, Operators
from federator.console.stream import EventStream, Pulse, told
from federator.errors import ConfigError, LinkError
from federator.protocol.filters import validate_filter, validate_topic
from federator.protocol.rate_limiter import TokenBucket
from federator.protocol.types import BROKER_ID_MAX, BrokerId
from federator.runtime.process.clocks import monotonic_ms, wall_clock_ms
from federator.runtime.process.http import a_stranger_may_own

QUESTIONS_PER_S: Final = 20
"""Of all pages together: each may ask every agent."""
BODY_BYTES_MAX: Final = 4_096
TEXT_MAX: Final = 1_024
TRACE_S: Final = 5.0
FOUND_MAX: Final = 500
"""Rows and filters of a search that are shown."""

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
ASSETS: Final = {
    "theme.css": "text/css",
    "theme.js": "text/javascript",
    "console.css": "text/css",
    "console.js": "text/javascript",
    "map.js": "text/javascript",
    "cytoscape.min.js": "text/javascript",
    "cytoscape.LICENSE": "text/plain",
}

_log = structlog.get_logger()


def asset(name: str) -> bytes:
    """One of our files. Names are ours, never a client's."""
    return files("federator.console").joinpath("assets", name).read_bytes()


class Guarded:
    """Answers to no name that a stranger may own, and adds the headers that keep browsers here."""

    def __init__(self, app: ASGIApp, names: frozenset[str]) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, unless it is asked under a foreign name."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        if self._is_foreign(Request(scope).headers.get("host", "")):
            text = "not asked under one of our names: list it in http.names\n"
            await PlainTextResponse(text, 421)(scope, receive, send_safely)
            return
        await self._app(scope, receive, send_safely)

    def _is_foreign(self, host: str) -> bool:
        try:
            return a_stranger_may_own(urlsplit(f"//{host}").hostname or "", self._names)
        except ValueError:  # no name at all
            return True


class RefusedError(Exception):
    """A request is answered with ``status`` and one line."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Console:
    """What the page asks for.

    Args:
        pulse: Given when something changed; ended when we stop.
        ready: Whether anything can be read, and otherwise why not.
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
        self._questions = TokenBucket(QUESTIONS_PER_S)
        self._browsers = 0

    def application(self) -> Starlette:
        """All of it."""
        http = self._settings.http
        names = frozenset(each.lower() for each in (*http.names, http.host, socket.gethostname()))
        session = Middleware(
            SessionMiddleware,
            secret_key=secrets.token_hex(32),
            session_cookie="federator_console",
            max_age=self._settings.operators.session_s,
            same_site="strict",
            https_only=http.behind_tls,
        )
        pages: list[tuple[str, Callable[[Request], Awaitable[Response]], str]] = [
            ("/", self.show, "GET"),
            ("/assets/{name}", self.give, "GET"),
            ("/healthz", self.live, "GET"),
            ("/readyz", self.readiness, "GET"),
            ("/live", self.stream, "GET"),
            ("/api/me", self.me, "GET"),
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
            middleware=[Middleware(Guarded, names=names), session],
            exception_handlers={RefusedError: _refused, LinkError: _unanswered},
        )

    # -- for everybody ---------------------------------------------------------------------------

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
        """That we live."""
        return PlainTextResponse("alive\n")

    async def readiness(self, request: Request) -> Response:
        """Whether some broker can be read."""
        ready, reason = self._ready()
        return PlainTextResponse(f"{reason}\n", 200 if ready else 503)

    async def stream(self, request: Request) -> Response:
        """All that is shown, and what changes of it."""
        if self._browsers >= self._settings.http.browsers_max:
            raise RefusedError(503, "too many pages are open: see http.browsers_max")
        return EventStream(self._told())

    async def _told(self) -> AsyncIterator[str]:
        self._browsers += 1
        try:
            async for text in told(self._pulse, self._changes):
                yield text
        finally:
            self._browsers -= 1

    def _changes(self, seen: dict[str, int]) -> dict[str, Any]:
        picture, events = self._observer.picture, self._observer.events
        number = seen.get("number", 0)
        changes = picture.since(seen.get("version", 0), seen.get("generation", 0))
        changes |= {"events": events.since(number), "now_ms": wall_clock_ms()}
        ready, reason = self._ready()
        changes |= {"ready": ready, "reason": reason, "left_out": picture.left_out}
        seen |= {"version": picture.version, "generation": picture.generation}
        seen["number"] = events.number
        return changes

    async def me(self, request: Request) -> Response:
        """Who is signed in, and what the page has to know besides."""
        return JSONResponse(
            {
                "federation": self._settings.federation,
                "operator": request.session.get("operator"),
                "token": request.session.get("token"),
                "may_sign_in": self._operators.any,
                "history": self._settings.history,
                "streams": not self._observer.words.judges,
            }
        )

    async def search(self, request: Request) -> Response:
        """Who publishes and subscribes what, and which filters there are, by a part of the text."""
        answers = await self._observer.ask_all("search", self._asked(request, "text"))
        return JSONResponse(together(list(answers.values())))

    async def explain(self, request: Request) -> Response:
        """Where a publication on a topic goes from a broker, and why."""
        topic = _valid(validate_topic, self._asked(request, "topic"))
        return JSONResponse(await self._observer.ask(self._any_broker(request), "explain", topic))

    async def mesh(self, request: Request) -> Response:
        """What each agent says of its part in the mesh of a filter."""
        filter_ = _valid(validate_filter, self._asked(request, "filter"))
        answers = await self._observer.ask_all("mesh", filter_)
        kept = ("core", "local", "member", "next_hops")
        parts = {broker: {key: part.get(key) for key in kept} for broker, part in answers.items()}
        return JSONResponse({"filter": filter_, "parts": parts})

    async def trace(self, request: Request) -> Response:
        """Send a probe the way of a topic from a broker, and tell hop by hop."""
        topic = _valid(validate_topic, self._asked(request, "topic"))
        broker = self._any_broker(request)
        journey = await self._observer.trace(broker, topic, wait_s=TRACE_S)
        return JSONResponse(
            {
                "start": to_builtins(journey.start),
                "hops": [to_builtins(each) for each in journey.came.values()],
                "missing": journey.waited_for,
            }
        )

    def _asked(self, request: Request, name: str) -> str:
        """The text that is asked about, if there is room for one more question."""
        text = request.query_params.get(name, "")
        if not text or len(text) > TEXT_MAX:
            raise RefusedError(400, f"{name}: 1 to {TEXT_MAX} characters wanted")
        if not self._questions.take(monotonic_ms()):
            raise RefusedError(429, "too many questions: try again in a second")
        return text

    def _any_broker(self, request: Request) -> BrokerId:
        """The broker that is named, or the first whose agent answers."""
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
        _same_site(request)
        body = await _body(request)
        name, password = str(body.get("name", "")), str(body.get("password", ""))
        if not self._operators.any:
            raise RefusedError(403, "nobody can sign in here: operators.file is not named")
        if not self._operators.may_try(monotonic_ms()):
            _log.warning("console.sign_in_too_often")
            raise RefusedError(429, "too many attempts: wait a minute")
        try:
            known = await self._operators.is_one(name, password)
        except ConfigError as error:
            _log.error("console.operators_unusable", reason=str(error))
            raise RefusedError(503, "the file of operators cannot be used: see the log") from None
        if not known:
            shown = name if NAME.fullmatch(name) else "?"
            _log.warning("console.sign_in_refused", operator=shown)
            raise RefusedError(403, "no such name, or a wrong password")
        request.session.clear()
        request.session.update(operator=name, token=secrets.token_hex(16))
        _log.info("console.signed_in", operator=name)
        return await self.me(request)

    async def sign_out(self, request: Request) -> Response:
        """End the session."""
        _same_site(request)
        request.session.clear()
        return await self.me(request)

    async def drain(self, request: Request) -> Response:
        """Move a broker's clients away, or let them return."""
        operator = _operator(request)
        body = await _body(request)
        broker, draining = _broker(body.get("broker")), body.get("drain")
        if not isinstance(draining, bool):
            raise RefusedError(400, "drain: true or false wanted")
        _log.warning("console.drain", operator=operator, broker=broker, drain=draining)
        await self._observer.drain(broker, draining=draining)
        return JSONResponse({"broker": broker, "draining": draining})


def together(answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What agents found, each among its own clients, as one answer."""
    rows = [row for answer in answers for row in answer.get("rows", ())]
    filters = sorted({each for answer in answers for each in answer.get("filters", ())})
    return {
        "rows": rows[:FOUND_MAX],
        "rows_total": sum(answer.get("rows_total", 0) for answer in answers),
        "filters": filters[:FOUND_MAX],
        "filters_total": len(filters),
        "reported": any(answer.get("reported") for answer in answers),
        "whole": all(answer.get("whole", True) for answer in answers),
        "asked": len(answers),
    }


def _operator(request: Request) -> str:
    """Who is signed in, and asks from our own page."""
    _same_site(request)
    operator, token = request.session.get("operator"), request.session.get("token", "")
    if not operator:
        raise RefusedError(401, "sign in first: only operators may do that")
    if not hmac.compare_digest(request.headers.get("x-console-token", "").encode(), token.encode()):
        raise RefusedError(403, "not asked from this page")
    return str(operator)


def _same_site(request: Request) -> None:
    """Refuse what a page elsewhere has a browser send."""
    origin = request.headers.get("origin")
    if origin is None or urlsplit(origin).netloc != request.headers.get("host"):
        raise RefusedError(403, "not asked from this page")


async def _body(request: Request) -> dict[str, Any]:
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > BODY_BYTES_MAX:
            raise RefusedError(413, f"at most {BODY_BYTES_MAX} bytes wanted")
    try:
        body = json.loads(data)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise RefusedError(400, "a JSON object wanted")
    return body


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


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError)
    return JSONResponse({"error": str(error)}, error.status)


async def _unanswered(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 502)
