"""Where browsers connect: time and connection limits that uvicorn lacks.

Uvicorn closes a connection that is idle after an answer. But it keeps one that never finished a
request, or does not read its answer, without a time limit, and counts it among those that may be
open. So one stranger with a script could keep all others out. Here a connection is *awaited* while
it is silent, its request is incomplete, or its answer is not read. It is closed after
``PATIENCE_S`` without progress, and sooner if others need the place; one that waits for us keeps
it. The analytics dashboard uses this, too.

Source: RFC 9112, 9.5; docs/console.md, "What it takes".
"""

import asyncio
import socket
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from federator.runtime.process.antechamber import Antechamber, Place

PATIENCE_S: Final = 10.0
"""Time limit for a whole request, from its first byte or the connection; and for the other end to
read something."""
STOP_S: Final = 3
"""Seconds that open connections have to end."""
CONNECTIONS_MAX: Final = 512
AWAITED_MAX: Final = 256
PER_ADDRESS_MAX: Final = 128
WAITING_MAX: Final = 64
"""Connections not yet accepted by us: those that come before the application runs wait."""


def listening(host: str, port: int) -> socket.socket:
    """Return a listening socket.

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


class PagesConfig(uvicorn.Config):
    """How an application is served, and the limits on connections.

    Attributes:
        gave_way: Connections closed because another needed the place.
        over_share: Connections refused because all of their address wait for our answer.
    """

    def __init__(self, application: ASGIApp, *, behind_proxy: bool = False) -> None:
        """Serve HTTP/1.1 alone, with limits and without an access log.

        Args:
            behind_proxy: Whether a proxy on this machine may name the client's address.
        """
        super().__init__(
            application,
            http=PatientProtocol,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=behind_proxy,
            lifespan="off",
            limit_concurrency=CONNECTIONS_MAX,
            timeout_graceful_shutdown=STOP_S,
        )
        self.gave_way = self.over_share = 0
        self.antechamber = Antechamber(
            self, unfinished_max=AWAITED_MAX, per_address_max=PER_ADDRESS_MAX
        )


class PatientProtocol(H11Protocol):
    """HTTP/1.1, with a time limit for slow clients."""

    config: PagesConfig

    def __init__(self, *given: Any, **named: Any) -> None:  # noqa: ANN401
        super().__init__(*given, **named)
        self._late: asyncio.TimerHandle | None = None
        self._unread = 0  # bytes, when the timer was set
        self._place: Place | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit a new connection, or close it."""
        super().connection_made(transport)
        host = self.client[0] if self.client else ""
        self._place = self.config.antechamber.enter(host, self._close)
        if self._place is None:
            self._close()
        else:
            self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Free the place of a connection that ended."""
        self._wait_no_more()
        if self._place is not None:
            self._place.leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """Wait for the next request: the answer is complete."""
        super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        """Note that the client does not read fast enough."""
        super().pause_writing()
        self._look()

    def resume_writing(self) -> None:
        """Note that the client reads again."""
        super().resume_writing()
        self._look()

    def _look(self) -> None:
        """Decide whether we wait for the client or it waits for us."""
        cycle: RequestResponseCycle | None = self.cycle
        asked = cycle is not None and not cycle.response_complete and not cycle.more_body
        if self._place is None or self.transport.is_closing():
            return
        if asked and not self.flow.write_paused:
            self._place.finish()
            self._wait_no_more()
        else:
            self._place.begin()
            if self._late is None:
                self._wait()

    def _wait(self) -> None:
        self._unread = self.transport.get_write_buffer_size()
        self._late = self.loop.call_later(PATIENCE_S, self._on_late)

    def _wait_no_more(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _on_late(self) -> None:
        if self.transport.get_write_buffer_size() < self._unread:  # the client reads, if slowly
            self._wait()
        else:
            self._close()

    def _close(self) -> None:
        self._wait_no_more()
        self.transport.abort()
