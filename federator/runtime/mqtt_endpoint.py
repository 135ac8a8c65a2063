"""Where a broker listens, who we are there, and how a connection is opened.

A broker on our own machine can also be reached by a Unix socket. It carries a publication past TCP
and its acknowledgements: some 7 us less each way, of 25.
"""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a broker is and who we are there.

    Attributes:
        host: Name or address,
        port: and port.
        tls: Encrypts.
        socket: Path of a Unix socket to be used instead of all three.
    """

    host: str
    port: int
    username: str | None = None
    password: bytes | None = None
    tls: ssl.SSLContext | None = None
    socket: str | None = None

    def __repr__(self) -> str:  # never the password
        return f"Endpoint({self.place}{' tls' if self.tls else ''})"

    @property
    def place(self) -> str:
        """For logs: host and port, or the path."""
        return self.socket or f"{self.host}:{self.port}"

    async def connect(self, make_protocol: Callable[[], asyncio.BaseProtocol]) -> None:
        """Open a connection for a protocol.

        Raises:
            OSError: Nobody there.
            UnicodeError: ``host`` is no name of a host.
        """
        loop = asyncio.get_running_loop()
        if self.socket is not None:
            await loop.create_unix_connection(make_protocol, self.socket)
        else:
            await loop.create_connection(make_protocol, self.host, self.port, ssl=self.tls)

    async def streams(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection to be read and written by whoever waits. Raises as ``connect``."""
        if self.socket is not None:
            return await asyncio.open_unix_connection(self.socket)
        return await asyncio.open_connection(self.host, self.port, ssl=self.tls)
