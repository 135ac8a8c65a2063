"""Where browsers connect, with what uvicorn leaves open: a request has to come in time.

Uvicorn closes a connection that is idle after an answer; one on which no request was ever finished
it keeps for as long as the other end likes, and counts it among those that may be open. So one
stranger with a script could keep everybody else out. The dashboard of analytics is served by this,
too.

Source: RFC 9112, 9.5.
"""

import asyncio
import socket
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

REQUEST_S: Final = 10.0
"""From the first byte of a request, or from the connection, until its head is whole."""
STOP_S: Final = 3
"""Seconds that open connections have to end."""
CONNECTIONS_MAX: Final = 512
WAITING_MAX: Final = 64
"""Connections that nobody has accepted yet: who comes before the application runs will wait."""


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens there.

    Raises:
        OSError: The port is taken, or the address is not ours.
    """
    family, kind, proto, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, proto)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(WAITING_MAX)
    except OSError:
        listener.close()
        raise
    return listener


class PatientProtocol(H11Protocol):
    """HTTP/1.1, for requests that come within ``REQUEST_S``."""

    def __init__(self, *given: Any, **named: Any) -> None:  # noqa: ANN401
        super().__init__(*given, **named)
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A browser connected."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._wait_no_more()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Some of a request came, or all of it."""
        super().data_received(data)
        if self._is_answering():
            self._wait_no_more()
        elif self._late is None:
            self._wait()

    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _wait(self) -> None:
        self._late = self.loop.call_later(REQUEST_S, self._close)

    def _wait_no_more(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _close(self) -> None:
        self._late = None
        if not self.transport.is_closing():
            self.transport.abort()


def pages_config(application: ASGIApp) -> uvicorn.Config:
    """How ``application`` is served: HTTP/1.1 alone, within bounds, without a log of its own."""
    return uvicorn.Config(
        application,
        http=PatientProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        limit_concurrency=CONNECTIONS_MAX,
        timeout_graceful_shutdown=STOP_S,
    )
