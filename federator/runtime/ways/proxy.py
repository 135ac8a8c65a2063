"""Connections through an HTTP proxy: CONNECT, and from then on bytes as over a plain connection.

TLS runs with the broker through it, so the proxy learns the broker's name and nothing else.

Source: RFC 9110, 9.3.6 (CONNECT); RFC 7617 (Basic).
"""

import asyncio
import base64
import ssl
from dataclasses import dataclass, field
from typing import Final

from federator.errors import LinkError

HEAD_BYTES_MAX: Final = 8_192
_END: Final = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class HttpProxy:
    """The address of a proxy, and our login there: ``user:password``."""

    host: str
    port: int
    login: bytes | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    async def connect(
        self, protocol: asyncio.BaseProtocol, host: str, port: int, tls: ssl.SSLContext | None
    ) -> asyncio.Transport:
        """Open a connection to ``host``, a name that the proxy resolves, for ``protocol``.

        Raises:
            OSError: The proxy is not there, or TLS fails.
            UnicodeError: ``host`` is not a valid host name.
            LinkError: The proxy refuses us.
        """
        name = f"[{host}]" if ":" in host else host.encode("idna").decode("ascii")
        loop = asyncio.get_running_loop()
        answer = _Answer(loop.create_future())
        transport: asyncio.Transport | None
        transport, _ = await loop.create_connection(lambda: answer, self.host, self.port)
        plain = transport
        try:
            transport.write(self._request(f"{name}:{port}"))
            status = await answer.status
            if status is None:
                raise LinkError(f"the proxy {self} does not answer as an HTTP proxy does")
            if _code(status) == "407":
                asks = "asks who we are: set proxy_username and proxy_password_file"
                denies = "does not accept our user name and password"
                raise LinkError(f"refused: the proxy {self} {denies if self.login else asks}")
            if _code(status) != "200":
                raise LinkError(f"the proxy {self} does not let us through: {status!r}")
            if tls is None:
                transport.set_protocol(protocol)
            else:
                transport = await loop.start_tls(transport, protocol, tls, server_hostname=host)
            if transport is None:
                raise ConnectionResetError("the proxy hung up")
            protocol.connection_made(transport)
        except BaseException:
            plain.abort()
            raise
        return transport

    def _request(self, place: str) -> bytes:
        lines = [f"CONNECT {place} HTTP/1.1".encode(), f"Host: {place}".encode()]
        if self.login is not None:
            lines.append(b"Proxy-Authorization: Basic " + base64.b64encode(self.login))
        return b"\r\n".join([*lines, b"", b""])


class _Answer(asyncio.Protocol):
    """Waits for the head of a proxy's answer. Nothing follows yet: brokers send second.

    ``status``: its first line, or ``None`` when it is not valid.
    """

    def __init__(self, status: asyncio.Future[str | None]) -> None:
        self.status = status
        self._head = b""

    def data_received(self, data: bytes) -> None:
        self._head += data
        if _END in self._head:
            status = self._head.split(b"\r\n", 1)[0].decode("latin-1")[:80]
            opened = _code(status) == "200"  # else a page about it may follow
            self._set_status(status if self._head.endswith(_END) or not opened else None)
        elif len(self._head) > HEAD_BYTES_MAX:
            self._set_status(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_status(None)

    def _set_status(self, status: str | None) -> None:
        if not self.status.done():
            self.status.set_result(status)


def _code(status: str) -> str:
    """The status code of a status line, if it is one."""
    protocol, _, rest = status.partition(" ")
    return rest[:3] if protocol.startswith("HTTP/1.") else ""
