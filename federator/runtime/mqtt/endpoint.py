"""Where a broker listens, who we are there, and how a connection is opened.

A broker on our own machine can also be reached by a Unix socket. It carries a publication past TCP
and its acknowledgements: some 7 us less each way, of 25.
"""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from federator.config.brokers import BrokerAddress, BrokerSettings, NeighbourSettings
from federator.runtime.mqtt.proxy import HttpProxy


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a broker is and who we are there.

    Attributes:
        socket: Path of a Unix socket to be used instead of host, port and TLS.
        proxy: By which we go there, instead of straight.
    """

    host: str
    port: int
    username: str | None = None
    password: bytes | None = None
    tls: ssl.SSLContext | None = None
    socket: str | None = None
    proxy: HttpProxy | None = None

    def __repr__(self) -> str:  # never the password
        return f"Endpoint({self.place}{' tls' if self.tls else ''})"

    @property
    def place(self) -> str:
        """Host and port, or the path, for logs."""
        return self.socket or f"{self.host}:{self.port}"

    async def connect(self, make_protocol: Callable[[], asyncio.BaseProtocol]) -> None:
        """Open a connection for a protocol.

        Raises:
            OSError: Nobody there.
            UnicodeError: ``host`` is no name of a host.
            LinkError: The proxy does not let us through.
        """
        loop = asyncio.get_running_loop()
        if self.socket is not None:
            await loop.create_unix_connection(make_protocol, self.socket)
        elif self.proxy is not None:
            await self.proxy.connect(make_protocol(), self.host, self.port, self.tls)
        else:
            await loop.create_connection(make_protocol, self.host, self.port, ssl=self.tls)

    async def streams(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection to be read and written by whoever waits. Raises as ``connect``."""
        if self.socket is not None:
            return await asyncio.open_unix_connection(self.socket)
        if self.proxy is not None:
            reader = asyncio.StreamReader()
            protocol = asyncio.StreamReaderProtocol(reader)
            way = await self.proxy.connect(protocol, self.host, self.port, self.tls)
            loop = asyncio.get_running_loop()
            return reader, asyncio.StreamWriter(way, protocol, reader, loop)
        return await asyncio.open_connection(self.host, self.port, ssl=self.tls)


def endpoint_of(connection: BrokerAddress) -> Endpoint:
    """Where and how the configuration says to connect: by our own broker's socket if it has one.

    Files of passwords and certificates are read now.

    Raises:
        ValueError: A certificate or key is not usable.
        OSError: A file cannot be read.
    """
    address = connection.address
    socket = connection.socket if isinstance(connection, BrokerSettings) else None
    proxy = connection.proxy_address if isinstance(connection, NeighbourSettings) else None
    return Endpoint(
        address.host,
        address.port,
        username=connection.username,
        password=connection.secret(),
        tls=None if socket else connection.tls_context(datetime.now(UTC)),
        socket=socket,
        proxy=HttpProxy(*proxy) if proxy else None,
    )
