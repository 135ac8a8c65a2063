"""One loopback listener for people and monitors: a page per question, GET only.

This serves a handful of requests a minute on a gateway, next to a data path that must not be
disturbed, so it is a page of code rather than a web framework. The danger of such a server is
unbounded input; here every request has a limit in bytes and in time, connections have a limit in
number, and every answer closes its connection. An answer takes a moment, so the oldest connection
is silent, or does not read: it gives way to a new one, and a crowd of them keeps no monitor out.

A page in a browser may send us requests under a name whose owner points it at us (DNS rebinding).
So we answer only to names that no stranger can own: addresses, names without a dot, our machine's,
and those that the operator lists.

All content comes from an ``AgentView``; nothing here knows what a core or a route is.

Source: RFC 9112 for the messages; the Prometheus exposition format for /metrics.
"""

import asyncio
import ipaddress
import re
import socket
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from http import HTTPStatus
from typing import Protocol
from urllib.parse import parse_qs, urlsplit

import msgspec
import structlog

from federator.errors import ConfigError
from federator.runtime.process.antechamber import Antechamber
from federator.runtime.process.exposition import Family, build_info

REQUEST_BYTES_MAX = 8_192
REQUEST_SECONDS_MAX = 5.0
CONNECTIONS_MAX = 64
PER_ADDRESS_MAX = 16
PORT_TAKEN_EXIT_CODE = 69

_log = structlog.get_logger(__name__)

_NOT_IN_TOPICS = frozenset("+#\0")
_HOST = re.compile(rb"^host:[ \t]*(.*?)[ \t]*\r$", re.IGNORECASE | re.MULTILINE)
_JSON = "application/json; charset=utf-8"
_TEXT = "text/plain; charset=utf-8"
_PAGES = b"/metrics /healthz /readyz /status /routes /explain /controller /topology\n"


class AgentView(Protocol):
    """The questions a daemon answers. Called from the event loop: answer from memory.

    The defaults here are for daemons other than agents.

    Attributes:
        http_refused: Returns how many connections were refused; set by the listener.
    """

    http_refused: Callable[[], int]

    def ready(self) -> tuple[bool, str]:
        """Whether publications flow, and otherwise why not, in one line."""

    def status(self) -> Mapping[str, object]:
        """The whole state, as JSON-ready values; lists are bounded."""

    def explain(self, topic: str) -> Mapping[str, object]:
        """Where a publication on ``topic`` would go, and why."""
        return {"topic": topic, "text": "ask the agent of a broker: only agents route"}

    def routes(self) -> Iterable[Mapping[str, object]]:
        """The routes, one entry per filter; bounded."""

    def controller(self) -> Mapping[str, object]:
        """Which broker steps in for which, and why; lists are bounded."""
        return {"enabled": False, "controller": None}

    def topology(self) -> Mapping[str, object]:
        """The whole graph as this agent knows it; lists are bounded."""
        return {"mode": None, "brokers": [], "links": []}

    def metrics(self) -> Iterable[Family]:
        """Counters and gauges, read now."""


class _RequestError(Exception):
    """The request is answered with ``status`` and nothing else."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


_Answer = tuple[HTTPStatus, str, bytes]


@dataclass(eq=False, repr=False)
class HttpServer:
    """The listener for pages. Use as an async context manager.

    Attributes:
        gave_way: Connections closed to make room for others.
    """

    view: AgentView
    host: str
    port: int  # 0 takes any free one; which, is known once started
    _: KW_ONLY
    names: Collection[str] = ()  # under which we answer, beside those that no stranger can own
    request_seconds_max: float = REQUEST_SECONDS_MAX  # for a request and our answer
    gave_way: int = field(default=0, init=False)
    over_share: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._own_names = {name.lower() for name in (*self.names, self.host, socket.gethostname())}
        self._connections: set[asyncio.Task[None]] = set()
        self._antechamber = Antechamber(
            self, unfinished_max=CONNECTIONS_MAX, per_address_max=PER_ADDRESS_MAX
        )

    async def __aenter__(self) -> "HttpServer":
        """Listen.

        Raises:
            ConfigError: The port is taken, or the address is not ours.
        """
        try:
            self._server = await asyncio.start_server(
                self._accept, self.host, self.port, limit=REQUEST_BYTES_MAX
            )
        except OSError as error:
            raise port_taken(self.host, self.port, error) from error
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening and abort open connections."""
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, *_ = writer.get_extra_info("peername") or ("",)
        place = self._antechamber.enter(host, writer.transport.abort)
        if place is None:  # never: no connection here waits for us
            writer.transport.abort()
            return
        task = asyncio.create_task(self._serve(reader, writer), name="http request")
        self._connections.add(task)

        def gone(task: asyncio.Task[None]) -> None:
            place.leave()
            self._connections.discard(task)

        task.add_done_callback(gone)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self.request_seconds_max):
                try:
                    method, target, host = await _read_request(reader)
                    self._check_name(host)
                    status, kind, body = self._answer_or_own_up(target)
                except _RequestError as error:
                    method = "GET"
                    status, kind, body = error.status, _TEXT, f"{error}\n".encode()
                head = (
                    f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\n"
                    f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\n"
                    "Connection: close\r\n\r\n"
                ).encode()
                writer.write(head if method == "HEAD" else head + body)
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError):
            pass  # a slow or lost client is not worth a log line
        finally:
            writer.transport.abort()

    def _check_name(self, host: str | None) -> None:
        """Refuse a request for a name that a stranger may own."""
        if host is None:  # every browser sends it
            return
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        if not a_stranger_may_own(name, self._own_names):
            return
        text = f"not asked as {name[:80]!r}: list it in http.names, or ask an address"
        raise _RequestError(HTTPStatus.MISDIRECTED_REQUEST, text)

    def _answer_or_own_up(self, target: str) -> _Answer:
        """The answer; an exception of ours costs one page, not the daemon."""
        try:
            return self._answer(target)
        except _RequestError:
            raise
        except Exception:
            _log.exception("http.page_failed", page=target[:80])
            raise _RequestError(HTTPStatus.INTERNAL_SERVER_ERROR, "see the agent's log") from None

    def _answer(self, target: str) -> _Answer:
        parts = urlsplit(target)
        match parts.path.rstrip("/") or "/":
            case "/metrics":
                from federator.runtime.process import scrape  # noqa: PLC0415 - 4 MB, if it is asked

                metrics = (*build_info(), *self.view.metrics())
                return HTTPStatus.OK, scrape.CONTENT_TYPE, scrape.text(metrics)
            case "/healthz":
                return HTTPStatus.OK, _TEXT, b"alive\n"
            case "/readyz":
                ready, reason = self.view.ready()
                status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
                return status, _TEXT, f"{reason}\n".encode()
            case "/status":
                return _json(self.view.status())
            case "/routes":
                return _json(list(self.view.routes()))
            case "/controller":
                return _json(self.view.controller())
            case "/topology":
                return _json(self.view.topology())
            case "/explain":
                topics = parse_qs(parts.query, errors="replace").get("topic", [])
                if len(topics) != 1 or not topics[0] or _NOT_IN_TOPICS & set(topics[0]):
                    text = "give one topic, without + and #: /explain?topic=a/b"
                    raise _RequestError(HTTPStatus.BAD_REQUEST, text)
                return _json(self.view.explain(topics[0]))
            case "/":
                return HTTPStatus.OK, _TEXT, _PAGES
            case _:
                raise _RequestError(HTTPStatus.NOT_FOUND, "no such page; / lists them")


async def _read_request(reader: asyncio.StreamReader) -> tuple[str, str, str | None]:
    """Method, target and Host of a request. All other header fields are ignored."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise _RequestError(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"at most {REQUEST_BYTES_MAX} bytes"
        ) from None
    except asyncio.IncompleteReadError:
        raise _RequestError(HTTPStatus.BAD_REQUEST, "the request is not whole") from None
    try:
        method, target, version = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")
        hosts = [host.decode("ascii") for host in _HOST.findall(head)]
        urlsplit(target)
        urlsplit(f"//{''.join(hosts)}")
    except ValueError:
        raise _RequestError(HTTPStatus.BAD_REQUEST, "not an HTTP request") from None
    if not version.startswith("HTTP/1.") or not target.startswith("/") or len(hosts) > 1:
        raise _RequestError(HTTPStatus.BAD_REQUEST, "not an HTTP/1 request for a page")
    if method not in ("GET", "HEAD"):
        raise _RequestError(HTTPStatus.METHOD_NOT_ALLOWED, "GET only")
    return method, target, hosts[0] if hosts else None


def port_taken(host: str, port: int, error: OSError) -> ConfigError:
    """Why ``http.port`` cannot be listened on, and what to do."""
    reason = (error.strerror or str(error)).lower()
    return ConfigError(
        f"http.port = {port} on {host}: {reason}: choose another http.port, or 0 for any free one",
        exit_code=PORT_TAKEN_EXIT_CODE,
    )


def a_stranger_may_own(name: str, ours: Collection[str]) -> bool:
    """Whether a stranger may own ``name``, and so let a page of theirs request ours."""
    name = name.rstrip(".").lower()
    return "." in name and name not in ours and not _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _json(value: object) -> _Answer:
    text = msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=0)
    return HTTPStatus.OK, _JSON, text + b"\n"
