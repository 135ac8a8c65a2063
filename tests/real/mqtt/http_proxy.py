"""An HTTP proxy that knows CONNECT and nothing else."""

import asyncio
import base64
import contextlib

from tests.tcp_server import serving

WHO = (
    b"HTTP/1.1 407 Proxy Authentication Required\r\n"
    b'Proxy-Authenticate: Basic realm="way out"\r\nContent-Length: 5\r\n\r\nWho?\n'
)


class HttpProxy:
    """Listens at ``port`` of this host; an async context manager.

    Attributes:
        asked: The request lines so far.
        answer: What every request is answered; ``None``: it is let through.
        login: ``user:password`` of who is let through; ``None``: everybody.
    """

    def __init__(self, *, answer=None, login=None):
        self.asked, self.answer, self.login = [], answer, login
        self._writers, self._stack = [], contextlib.AsyncExitStack()

    async def __aenter__(self):
        self.port = await self._stack.enter_async_context(serving(self._answer))
        return self

    async def __aexit__(self, *error):
        await self._stack.aclose()

    def hang_up(self):
        """Break all connections that are open, wherever they are in what they carry."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def _wanted(self):
        return b"\r\nProxy-Authorization: Basic " + base64.b64encode(self.login) + b"\r\n"

    async def _answer(self, reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        line = head.split(b"\r\n")[0].decode()
        self.asked.append(line)
        denied = self.login is not None and self._wanted() not in head
        if self.answer is not None or denied:
            writer.write(WHO if self.answer is None else self.answer)
            return
        host, _, port = line.split(" ")[1].rpartition(":")
        there, onward = await asyncio.open_connection(host.strip("[]"), int(port))
        self._writers += [writer, onward]
        writer.write(b"HTTP/1.1 200 Connection established\r\nVia: 1.1 test\r\n\r\n")
        await asyncio.gather(_pump(reader, onward), _pump(there, writer))


async def _pump(source, target):
    try:
        while data := await source.read(65_536):
            target.write(data)
            await target.drain()
    finally:
        target.close()
