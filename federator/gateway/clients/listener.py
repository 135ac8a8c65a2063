"""Listeners, and connections until their CONNECT is complete.

Source: OASIS MQTT 5.0, 3.1; a connection without CONNECT in time is closed.
"""

import asyncio
import contextlib
import socket
import ssl
from typing import Final, Protocol, cast

import structlog

from federator.config.gateway import GatewaySettings, ListenerSettings
from federator.errors import ConfigError
from federator.gateway import wire
from federator.gateway.clients.ports import PACKETS_AT_ONCE, Port, PortOwner
from federator.gateway.metrics import GatewayCounters
from federator.gateway.wire.kinds import MalformedError, Packet, Reason
from federator.protocol.types import Millis
from federator.runtime.process.antechamber import Antechamber, Place
from federator.runtime.process.clocks import DeadlineTimer, monotonic_ms

PORT_TAKEN_EXIT_CODE: Final = 69
BACKLOG: Final = 1_024
"""Connections that the kernel queues for us,"""

ACCEPTED_AT_ONCE: Final = 32
"""and those accepted in one turn of the loop."""

_log = structlog.get_logger()


class ConnectingClient(PortOwner, Protocol):
    """Takes over a client's connection once its CONNECT is complete."""

    def dismiss(self, reason: Reason, text: str) -> None:
        """End the client and send it the reason."""

    def go_on(self, block: bytes, packets: list[Packet]) -> None:
        """Take what the client sent behind its CONNECT in the same read."""


class ListenerContext(Protocol):
    """What a listener needs of the gateway, which admits clients."""

    antechamber: Antechamber
    counters: GatewayCounters
    settings: GatewaySettings

    def admit(
        self, connect: wire.Connect, port: Port, splitter: wire.Splitter, place: Place
    ) -> ConnectingClient:
        """Admit the client that sent ``connect``, or raise ``MalformedError`` with its version."""


class Listener:
    """One address and port on which clients connect."""

    def __init__(
        self, context: ListenerContext, settings: ListenerSettings, tls: ssl.SSLContext | None
    ) -> None:
        self._context = context
        self._settings = settings
        self._tls = tls
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Start listening.

        Raises:
            ConfigError: The port is taken, or the address is not ours.
        """
        host, port = self._settings.host, self._settings.port
        try:
            self._server = await asyncio.get_running_loop().create_server(
                lambda: _PendingConnection(self._context, self._tls),
                host,
                port,
                backlog=ACCEPTED_AT_ONCE,
            )
            for sock in self._server.sockets:
                with sock.dup() as same:
                    same.listen(BACKLOG)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            text = f"listeners: port {port} on {host}: {reason}: choose another port"
            raise ConfigError(text, exit_code=PORT_TAKEN_EXIT_CODE) from error

    def close(self) -> None:
        """Accept no more connections."""
        if self._server is not None:
            self._server.close()


class _PendingConnection(asyncio.Protocol):
    """A connection with an incomplete CONNECT; a TLS one starts as plain TCP."""

    _place: Place

    def __init__(self, context: ListenerContext, tls: ssl.SSLContext | None) -> None:
        self.port = Port(self)
        self._context = context
        self._tls = tls
        self._socket: socket.socket | None = None
        self._handshake: asyncio.Task[None] | None = None
        self._timeout_ms = context.settings.clients.connect_timeout_ms
        limit = context.settings.clients.packet_bytes_max
        self._splitter = wire.Splitter(
            limit=limit, firsts=wire.FROM_CLIENT, at_once=PACKETS_AT_ONCE
        )
        self._timer = DeadlineTimer(self._give_up)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a place, and start the time limit for CONNECT."""
        arrived = cast("asyncio.Transport", transport)  # uvloop's is not an asyncio.Transport
        host, *_ = arrived.get_extra_info("peername") or ("",)
        place = self._context.antechamber.enter(host, self._give_up)
        if place is None:
            self._context.counters.refused += 1
            arrived.abort()
            return
        self._place = place
        self._timer.set(Millis(monotonic_ms() + self._timeout_ms))
        if self._tls is None:
            arrived.set_protocol(self.port)
            self.port.connection_made(arrived)
            return
        # The loop's own TLS servers report a connection only after its handshake.
        try:
            self._socket = arrived.get_extra_info("socket").dup()
        except OSError:  # no file descriptor left
            self._give_up()
            return
        finally:
            arrived.abort()
        handshake = self._shake_hands(self._socket, self._tls)
        self._handshake = asyncio.create_task(handshake, name=f"TLS handshake with {host}")

    async def _shake_hands(self, arrived: socket.socket, tls: ssl.SSLContext) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self.port, arrived, ssl=tls, ssl_handshake_timeout=self._timeout_ms / 1000
            )
        except OSError:  # TLS errors are OSErrors
            self._leave()

    def on_data(self, port: Port, data: bytes) -> bool:
        """Admit the client when its CONNECT is complete, or refuse it."""
        self._place.receive(len(data))
        if not port.open:
            return False
        try:
            block, packets = self._splitter.feed(data)
            if not packets:
                if self._splitter.fault is not None:
                    raise self._splitter.fault
                return False
            connect = wire.read_connect(block, packets[0])
            self._splitter.speak(connect.version)
            client = self._context.admit(connect, port, self._splitter, self._place)
        except MalformedError as error:
            self._refuse(error)
            return False
        self._timer.set(None)
        self._place.finish(lambda: client.dismiss(Reason.SERVER_BUSY, "others need its place"))
        port.give_to(client)
        if len(packets) > 1 or self._splitter.fault is not None:
            client.go_on(block, packets[1:])
        return self._splitter.more

    def on_lost(self, port: Port, error: Exception | None) -> None:
        """Free the place of a connection that ended."""
        self._leave()

    def on_room(self, port: Port, room: bool) -> None:
        """Do nothing: too little is sent to pending connections to fill them."""

    def _refuse(self, error: MalformedError) -> None:
        self._context.counters.refused += 1
        _log.info("gateway.refused", reason=error.reason, text=str(error)[:200])
        self._leave()
        answer = wire.refusal(error)
        if answer:
            self.port.write([answer])
        self.port.close()

    def _give_up(self) -> None:
        self._context.counters.refused += 1
        self._leave()
        self.port.abort()
        if self._socket is not None:  # the port has no transport before the handshake is over
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _leave(self) -> None:
        self._place.leave()
        self._splitter = wire.Splitter(firsts=wire.FROM_CLIENT)  # frees the held bytes at once
        self._timer.set(None)
