"""Where clients come in: listeners, and what happens until a CONNECT is whole.

Source: OASIS MQTT 5.0, section 3.1; who does not say CONNECT in time is sent away.
"""

import asyncio
import ssl
from typing import Final, Protocol

import structlog

from federator.config import ListenerSettings
from federator.errors import ConfigError
from federator.gateway.counters import GatewayCounters
from federator.gateway.ports import Port
from federator.gateway.wire import (
    FROM_CLIENT,
    Connect,
    MalformedError,
    Packet,
    Splitter,
    Version,
    read_connect,
    refusal,
)

PORT_TAKEN_EXIT_CODE: Final = 69
STRANGERS_MAX: Final = 1_024
"""Connections that have not said CONNECT; more are closed at once."""

BACKLOG: Final = 1_024

_log = structlog.get_logger()


class Guest(Protocol):
    """Who hears of a client's connection once its CONNECT is whole."""

    def go_on(self, block: bytes, packets: list[Packet]) -> None:
        """The client sent more than its CONNECT at once."""

    def on_data(self, port: Port, data: bytes) -> None:
        """It sent something."""

    def on_lost(self, port: Port, error: Exception | None) -> None:
        """It is gone, and we did not close it."""

    def on_room(self, port: Port, room: bool) -> None:
        """It takes more, or no more just now."""


class Host(Protocol):
    """Who lets clients in."""

    counters: GatewayCounters
    packet_bytes_max: int

    @property
    def connect_timeout_s(self) -> float:
        """How long a CONNECT may take."""

    def admit(self, connect: Connect, port: Port, splitter: Splitter) -> Guest:
        """A client said CONNECT.

        Raises:
            MalformedError: It is not let in.
        """


class Door:
    """One listener.

    Args:
        host: Who lets clients in.
        settings: Where to listen.
        tls: The context of a TLS listener.
    """

    def __init__(self, host: Host, settings: ListenerSettings, tls: ssl.SSLContext | None) -> None:
        self._host = host
        self._settings = settings
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._strangers: set[_Stranger] = set()

    async def open(self) -> None:
        """Listen.

        Raises:
            ConfigError: The port is taken, or the address is not ours.
        """
        host, port = self._settings.host, self._settings.port
        try:
            self._server = await asyncio.get_running_loop().create_server(
                self._make_port, host, port, ssl=self._tls, backlog=BACKLOG
            )
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            what = f"listeners: port {port} on {host}: {reason}"
            raise ConfigError(
                f"{what}: choose another port", exit_code=PORT_TAKEN_EXIT_CODE
            ) from error

    def close(self) -> None:
        """Let nobody in any more."""
        if self._server is not None:
            self._server.close()
        for stranger in [*self._strangers]:
            stranger.port.abort()
        self._strangers.clear()

    def _make_port(self) -> Port:
        stranger = _Stranger(self._host, self._strangers)
        if len(self._strangers) >= STRANGERS_MAX:
            self._host.counters.refused += 1
            stranger.port.abort()
        else:
            stranger.wait()
        return stranger.port


class _Stranger:
    """A connection that has not said CONNECT."""

    def __init__(self, host: Host, strangers: "set[_Stranger]") -> None:
        self.port = Port(self)
        self._host = host
        self._strangers = strangers
        self._splitter = Splitter(limit=host.packet_bytes_max, firsts=FROM_CLIENT)
        self._timer: asyncio.Handle | None = None

    def wait(self) -> None:
        """Give it time."""
        self._strangers.add(self)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._host.connect_timeout_s, self._give_up)

    def on_data(self, port: Port, data: bytes) -> None:
        """Let it in, or send it away."""
        version: Version | None = None
        try:
            block, packets = self._splitter.feed(data)
            if not packets:
                if self._splitter.fault is not None:
                    raise self._splitter.fault
                return
            connect = read_connect(block, packets[0])
            version = connect.version
            self._splitter.speak(version)
            guest = self._host.admit(connect, port, self._splitter)
        except MalformedError as error:
            self._refuse(error, version)
            return
        self._leave()
        port.give_to(guest)
        if len(packets) > 1 or self._splitter.fault is not None:
            guest.go_on(block, packets[1:])

    def on_lost(self, port: Port, error: Exception | None) -> None:
        """It left."""
        self._leave()

    def on_room(self, port: Port, room: bool) -> None:
        """Nothing is sent to strangers that could fill it."""

    def _refuse(self, error: MalformedError, version: Version | None) -> None:
        self._host.counters.refused += 1
        _log.info("gateway.refused", reason=error.reason, text=str(error)[:200])
        self._leave()
        answer = refusal(error, version)
        if answer:
            self.port.write([answer])
        self.port.close()

    def _give_up(self) -> None:
        self._host.counters.refused += 1
        self._leave()
        self.port.abort()

    def _leave(self) -> None:
        self._strangers.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
