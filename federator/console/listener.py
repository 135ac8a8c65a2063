"""Where browsers connect, with what uvicorn leaves open: who is awaited has so much time and room.

Uvicorn closes a connection that is idle after an answer; one on which no request was ever finished,
or whose answer is not taken, it keeps for as long as the other end likes, and counts it among those
that may be open. So one stranger with a script could keep everybody else out. Here a connection is
*awaited* while it is silent, its request is not whole, or its answer is not taken. It is cut
when nothing came of that for ``PATIENCE_S``, and sooner if others need the place; one that waits
for us keeps it. The dashboard of analytics is served by this, too.

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
"""From the first byte of a request, or from the connection, until it is whole; and that the other
end may take to read something."""
STOP_S: Final = 3
"""Seconds that open connections have to end."""
CONNECTIONS_MAX: Final = 512
AWAITED_MAX: Final = 256
PER_ADDRESS_MAX: Final = 128
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


class PagesConfig(uvicorn.Config):
    """How an application is served, and who may connect.

    Attributes:
        gave_way: Connections whose place another needed.
        over_share: Connections refused, as all of their address wait for our answer.
    """

    def __init__(self, application: ASGIApp, *, behind_proxy: bool = False) -> None:
        """HTTP/1.1 alone, within bounds, without a log of its own.

        Args:
            behind_proxy: Whether somebody on this machine may say from where others come.
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
    """HTTP/1.1, with those who do not let us wait."""

    config: PagesConfig

    def __init__(self, *given: Any, **named: Any) -> None:  # noqa: ANN401
        super().__init__(*given, **named)
        self._late: asyncio.TimerHandle | None = None
        self._unread = 0  # bytes, when the timer was set
        self._place: Place | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A browser connected."""
        super().connection_made(transport)
        host = self.client[0] if self.client else ""
        self._place = self.config.antechamber.enter(host, self._close)
        if self._place is None:
            self._close()
        else:
            self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self._wait_no_more()
        if self._place is not None:
            self._place.leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Some of a request came, or all of it."""
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """It has its answer, and may ask something else."""
        super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        """It takes less than we say."""
        super().pause_writing()
        self._look()

    def resume_writing(self) -> None:
        """It took what we said."""
        super().resume_writing()
        self._look()

    def _look(self) -> None:
        """Note whose turn it is."""
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
        if self.transport.get_write_buffer_size() < self._unread:  # it reads, if slowly
            self._wait()
        else:
            self._close()

    def _close(self) -> None:
        self._wait_no_more()
        self.transport.abort()
