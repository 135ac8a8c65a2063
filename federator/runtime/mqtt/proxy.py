"""The way out by an HTTP proxy: CONNECT, and from then on bytes as over a plain connection.

TLS is spoken with the broker through it, so the proxy learns the broker's name and nothing else.

Source: RFC 9110, 9.3.6 (CONNECT).
"""

import asyncio
import socket
from dataclasses import dataclass
from typing import Final

from federator.errors import LinkError

HEAD_BYTES_MAX: Final = 8_192
_END: Final = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class HttpProxy:
    """Where a proxy listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    async def open(self, host: str, port: int) -> socket.socket:
        """A socket that leads to ``host``, whose name the proxy looks up.

        Raises:
            OSError: The proxy is not there.
            UnicodeError: ``host`` is no name of a host.
            LinkError: It does not let us through.
        """
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        way = socket.socket(family, kind, protocol)
        try:
            way.setblocking(False)
            await loop.sock_connect(way, address)
            name = f"[{host}]" if ":" in host else host.encode("idna").decode("ascii")
            place = f"{name}:{port}"
            order = f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n"
            await loop.sock_sendall(way, order.encode("ascii"))
            status = await self._answer(way)
        except BaseException:
            way.close()
            raise
        if status.split(" ")[1:2] != ["200"]:
            way.close()
            raise LinkError(f"the proxy {self} does not let us through: {status!r}")
        return way

    async def _answer(self, way: socket.socket) -> str:
        """The status line. Behind the head is nothing yet: brokers do not speak first."""
        loop = asyncio.get_running_loop()
        head = b""
        while not head.endswith(_END):
            more = await loop.sock_recv(way, HEAD_BYTES_MAX - len(head))
            head += more
            if not more or len(head) >= HEAD_BYTES_MAX:
                raise LinkError(f"the proxy {self} does not answer as an HTTP proxy does")
        return head.split(b"\r\n", 1)[0].decode("latin-1")[:80]
