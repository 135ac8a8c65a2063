"""A client that sends the packets it is given, of any version and however wrong."""

import asyncio
import contextlib

from federator.gateway import wire
from federator.gateway.wire import V5, V311, Property

ANSWER_WITHIN_S = 20.0
SESSION_S = 100


def connect(version, client_id="raw", *, clean=True, keep_alive=60, **options):
    """A CONNECT; a session that is not clean lasts, in version 5 for ``SESSION_S``."""
    if version == V5 and not clean:
        options.setdefault("properties", ((Property.SESSION_EXPIRY, SESSION_S),))
    return wire.Connect(version, client_id, clean, keep_alive, **options)


class Raw:
    """One connection.

    Attributes:
        heard: Packets that came and are not taken yet.
        closed: The other end closed the connection, or broke it.
    """

    writer = None

    def __init__(self, version=V311):
        self.version = version
        self.heard = []
        self.closed = False
        self._splitter = wire.Splitter(limit=1 << 20, firsts=wire.FROM_SERVER)

    async def dial(self, port, said, **options):
        """Connect, and send these bytes."""
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port, **options)
        self.writer.write(said)

    async def open(self, port, hello, **options):
        """Connect, and return the CONNACK; ``None`` when there is none."""
        self.version = hello.version
        await self.dial(port, wire.write_connect(hello), **options)
        return await self.packet()

    async def begin(self, port, hello):
        """Connect as ``hello`` says; return the CONNACK, read."""
        answer = await self.open(port, hello)
        return wire.read_connack(answer, wire.only(answer), self.version)

    async def packet(self):
        """The next packet; ``None`` when the other end closed."""
        await self.until(lambda: self.heard)
        return self.heard.pop(0) if self.heard else None

    async def until(self, condition):
        """Read until that, or until the other end closes."""
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                while not self.closed and not condition():
                    data = await self.reader.read(65_536)
                    block, packets = self._splitter.feed(data)
                    for _, start, _, end in packets:
                        self.hear(block[start:end])
                    self.closed = not data
        except ConnectionError:
            self.closed = True

    def hear(self, packet):
        """Take what came."""
        self.heard.append(packet)

    async def leave(self):
        """Say goodbye, and wait for the end."""
        if not self.closed:
            self.writer.write(wire.write_disconnect(0, self.version))
            await self.until(lambda: False)
        await self.close()

    async def close(self):
        """Break the connection off."""
        if self.writer is not None:
            self.writer.transport.abort()
            with contextlib.suppress(OSError):
                await self.writer.wait_closed()
