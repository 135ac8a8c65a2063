"""Checks on every request: our host name, our own page, and a small body.

Source: docs/console.md, "Signing in"; docs/security.md.
"""

import asyncio
import hmac
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from federator.errors import DecodeError
from federator.protocol.messages.fields import json_value
from federator.runtime.process.http import a_stranger_may_own

SESSION: Final = "federator_console"
"""The cookie with the token of a session."""
BODY_BYTES_MAX: Final = 4_096
BODY_S: Final = 5.0
"""Time limit for receiving a body."""

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


class Guarded:
    """Refuses host names that a stranger may own, and adds headers that restrict browsers."""

    def __init__(self, app: ASGIApp, names: frozenset[str]) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, unless its host name is foreign."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        begun = False

        async def send_safely(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        if self._is_foreign(Request(scope).headers.get("host", "")):
            text = "not asked under one of our names: list it in http.names\n"
            await PlainTextResponse(text, 421)(scope, receive, send_safely)
            return
        try:
            await self._app(scope, receive, send_safely)
        except asyncio.CancelledError:  # the server stops while we waited for an agent
            if not begun:
                await PlainTextResponse("the console stops\n", 503)(scope, receive, send_safely)

    def _is_foreign(self, host: str) -> bool:
        try:
            return a_stranger_may_own(urlsplit(f"//{host}").hostname or "", self._names)
        except ValueError:  # not a host name
            return True


class RefusedError(Exception):
    """Refuses a request with ``status`` and one line."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def token_of(request: Request) -> str:
    """The token of the browser's session; empty without one."""
    return request.cookies.get(SESSION, "")


def operator_of(request: Request, whose: Callable[[str], str | None]) -> str:
    """The signed-in operator, asking from our own page; ``whose`` maps a token to its operator."""
    same_site(request)
    token = token_of(request)
    operator = whose(token)
    if operator is None:
        raise RefusedError(401, "sign in first: only operators may do that")
    if not hmac.compare_digest(request.headers.get("x-console-token", "").encode(), token.encode()):
        raise RefusedError(403, "not asked from this page")
    return operator


def same_site(request: Request) -> None:
    """Refuse requests that another site's page makes a browser send."""
    origin = request.headers.get("origin")
    if origin is None or urlsplit(origin).netloc != request.headers.get("host"):
        raise RefusedError(403, "not asked from this page")


async def body_of(request: Request) -> dict[str, Any]:
    """The JSON object in the request."""
    data = b""
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.stream():
                data += chunk
                if len(data) > BODY_BYTES_MAX:
                    raise RefusedError(413, f"at most {BODY_BYTES_MAX} bytes wanted")
    except TimeoutError:
        raise RefusedError(408, f"a body within {BODY_S:.0f} s wanted") from None
    try:
        body = json_value("body", data, BODY_BYTES_MAX)
    except DecodeError:
        body = None
    if not isinstance(body, dict):
        raise RefusedError(400, "a JSON object wanted")
    return body


async def refused(request: Request, error: Exception) -> Response:
    """The response to a refused request."""
    assert isinstance(error, RefusedError)
    return JSONResponse({"error": str(error)}, error.status)


def address_of(request: Request) -> str:
    """The client's address, if known."""
    return request.client.host if request.client else ""
