"""What a console asks of every request: a name and a page that are ours, and a small body.

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

BODY_BYTES_MAX: Final = 4_096
BODY_S: Final = 5.0
"""What a body may take to come."""

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
    """Answers to no name that a stranger may own, and adds the headers that keep browsers here."""

    def __init__(self, app: ASGIApp, names: frozenset[str]) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, unless it is asked under a foreign name."""
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
        except asyncio.CancelledError:  # the server stops, and we waited for somebody else
            if not begun:
                await PlainTextResponse("the console stops\n", 503)(scope, receive, send_safely)

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


def token_of(request: Request) -> str:
    """Of the session that the browser says it is in; empty if it says none."""
    return str(request.session.get("token", ""))


def operator_of(request: Request, whose: Callable[[str], str | None]) -> str:
    """Who is signed in, and asks from our own page; ``whose`` tells whose session a token is of."""
    same_site(request)
    token = token_of(request)
    operator = whose(token)
    if operator is None:
        raise RefusedError(401, "sign in first: only operators may do that")
    if not hmac.compare_digest(request.headers.get("x-console-token", "").encode(), token.encode()):
        raise RefusedError(403, "not asked from this page")
    return operator


def same_site(request: Request) -> None:
    """Refuse what a page elsewhere has a browser send."""
    origin = request.headers.get("origin")
    if origin is None or urlsplit(origin).netloc != request.headers.get("host"):
        raise RefusedError(403, "not asked from this page")


async def body_of(request: Request) -> dict[str, Any]:
    """The JSON object that was sent."""
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
    """The answer to what is refused."""
    assert isinstance(error, RefusedError)
    return JSONResponse({"error": str(error)}, error.status)


def address_of(request: Request) -> str:
    """Whose request it is, as far as can be told."""
    return request.client.host if request.client else ""
