"""Where a broker listens, how we log in there, and how a connection is opened.

A broker on our own machine can also be reached by a Unix socket. That saves a publication and its
acknowledgements the way through TCP: some 7 us less each way, of 25.
"""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from federator.config.brokers import BrokerAddress, BrokerSettings, NeighbourSettings
from federator.runtime.ways.proxy import HttpProxy


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a broker and our login there.

    Attributes:
        socket: Path of a Unix socket to be used instead of host, port and TLS.
        proxy: An HTTP proxy to connect through.
        websocket: The path at which the broker speaks MQTT over WebSockets, if we are to use that.
    """

    host: str
    port: int
    username: str | None = None
    password: bytes | None = None
    tls: ssl.SSLContext | None = None
    socket: str | None = None
    proxy: HttpProxy | None = None
    websocket: str | None = None

    def __repr__(self) -> str:  # never the password
        return f"Endpoint({self.place}{' tls' if self.tls else ''})"

    @property
    def place(self) -> str:
        """Host and port, or the path, for logs."""
        return self.socket or f"{self.host}:{self.port}"

    async def streams(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection as a pair of streams. Raises as ``connect``."""
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport = await self.connect(lambda: protocol)
        loop = asyncio.get_running_loop()
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    async def connect(self, make_protocol: Callable[[], asyncio.BaseProtocol]) -> asyncio.Transport:
        """Open a connection for a protocol.

        Raises:
            OSError: Nothing listens there.
            UnicodeError: ``host`` is not a valid host name.
            LinkError: The proxy refuses us, or no WebSocket answers.
        """
        if self.websocket is None or self.socket is not None:
            return await self._reach(make_protocol)
        # Few brokers need WebSockets, and the library takes 1 MB.
        from federator.runtime.ways import websocket, websocket_transport  # noqa: PLC0415

        port = None if self.port == (443 if self.tls else 80) else self.port
        opening = websocket.WebSocket(self.host, port, self.websocket)
        return await websocket_transport.connect(self._reach, opening, make_protocol)

    async def _reach(self, make_protocol: Callable[[], asyncio.BaseProtocol]) -> asyncio.Transport:
        """Open the byte transport below MQTT and WebSockets."""
        loop = asyncio.get_running_loop()
        if self.socket is not None:
            return (await loop.create_unix_connection(make_protocol, self.socket))[0]
        if self.proxy is not None:
            return await self.proxy.connect(make_protocol(), self.host, self.port, self.tls)
        opened = await loop.create_connection(make_protocol, self.host, self.port, ssl=self.tls)
        return opened[0]


def endpoint_of(connection: BrokerAddress) -> Endpoint:
    """The endpoint that the configuration names: our own broker's socket if one is configured.

    Files of passwords and certificates are read now.

    Raises:
        ValueError: A certificate or key is not usable.
        OSError: A file cannot be read.
    """
    address = connection.address
    socket = connection.socket if isinstance(connection, BrokerSettings) else None
    proxy = None
    if isinstance(connection, NeighbourSettings) and (there := connection.proxy_address):
        proxy = HttpProxy(*there, connection.proxy_login())
    return Endpoint(
        address.host,
        address.port,
        username=connection.username,
        password=connection.secret(),
        tls=None if socket else connection.tls_context(datetime.now(UTC)),
        socket=socket,
        proxy=proxy,
        websocket=address.path,
    )
