"""Where clients come in: listeners, and what happens until a CONNECT is whole.

Source: OASIS MQTT 5.0, 3.1; who does not say CONNECT in time is sent away.
"""

import asyncio
import ssl
from typing import Final, Protocol

import structlog

from federator.config import ListenerSettings
from federator.errors import ConfigError
from federator.gateway import wire
from federator.gateway.clients.ports import Port, PortOwner
from federator.gateway.metrics import GatewayCounters
from federator.gateway.wire.kinds import MalformedError, Packet, Version
from federator.protocol.types import Millis
from federator.runtime.process.clocks import DeadlineTimer, monotonic_ms

PORT_TAKEN_EXIT_CODE: Final = 69
PENDING_MAX: Final = 1_024
"""Connections that have not said CONNECT; more are closed at once."""

BACKLOG: Final = 1_024

_log = structlog.get_logger()


class ConnectingClient(PortOwner, Protocol):
    """Who hears of a client's connection once its CONNECT is whole."""

    def go_on(self, block: bytes, packets: list[Packet]) -> None:
        """Take what the client sent behind its CONNECT in the same read."""


class ListenerContext(Protocol):
    """What a listener needs of the gateway, which lets clients in."""

    counters: GatewayCounters
    packet_bytes_max: int
    connect_timeout_ms: int

    def admit(self, connect: wire.Connect, port: Port, splitter: wire.Splitter) -> ConnectingClient:
        """Let in a client that said ``connect``.

        Raises:
            MalformedError: The client is not let in.
        """


class Listener:
    """One address and port on which clients connect."""

    def __init__(
        self, context: ListenerContext, settings: ListenerSettings, tls: ssl.SSLContext | None
    ) -> None:
        self._context = context
        self._settings = settings
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._pending: set[_PendingConnection] = set()

    async def open(self) -> None:
        """Begin to listen.

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
            text = f"listeners: port {port} on {host}: {reason}: choose another port"
            raise ConfigError(text, exit_code=PORT_TAKEN_EXIT_CODE) from error

    def close(self) -> None:
        """Let nobody in any more."""
        if self._server is not None:
            self._server.close()
        for connection in [*self._pending]:
            connection.port.abort()
        self._pending.clear()

    def _make_port(self) -> Port:
        connection = _PendingConnection(self._context, self._pending)
        if len(self._pending) >= PENDING_MAX:
            self._context.counters.refused += 1
            connection.port.abort()
        else:
            connection.wait()
        return connection.port


class _PendingConnection:
    """A connection whose CONNECT is not whole yet."""

    def __init__(self, context: ListenerContext, pending: "set[_PendingConnection]") -> None:
        self.port = Port(self)
        self._context = context
        self._pending = pending
        self._splitter = wire.Splitter(limit=context.packet_bytes_max, firsts=wire.FROM_CLIENT)
        self._timer = DeadlineTimer(self._give_up)

    def wait(self) -> None:
        """Give the client time to say CONNECT."""
        self._pending.add(self)
        self._timer.set(Millis(monotonic_ms() + self._context.connect_timeout_ms))

    def on_data(self, port: Port, data: bytes) -> None:
        """Let the client in when its CONNECT is whole, or send it away."""
        version: Version | None = None
        try:
            block, packets = self._splitter.feed(data)
            if not packets:
                if self._splitter.fault is not None:
                    raise self._splitter.fault
                return
            connect = wire.read_connect(block, packets[0])
            version = connect.version
            self._splitter.speak(version)
            client = self._context.admit(connect, port, self._splitter)
        except MalformedError as error:
            self._refuse(error, version)
            return
        self._leave()
        port.give_to(client)
        if len(packets) > 1 or self._splitter.fault is not None:
            client.go_on(block, packets[1:])

    def on_lost(self, port: Port, error: Exception | None) -> None:
        """Forget a client that left."""
        self._leave()

    def on_room(self, port: Port, room: bool) -> None:
        """Do nothing: what is sent to pending connections never fills them."""

    def _refuse(self, error: MalformedError, version: Version | None) -> None:
        self._context.counters.refused += 1
        _log.info("gateway.refused", reason=error.reason, text=str(error)[:200])
        self._leave()
        answer = wire.refusal(error, version)
        if answer:
            self.port.write([answer])
        self.port.close()

    def _give_up(self) -> None:
        self._context.counters.refused += 1
        self._leave()
        self.port.abort()

    def _leave(self) -> None:
        self._pending.discard(self)
        self._timer.set(None)
