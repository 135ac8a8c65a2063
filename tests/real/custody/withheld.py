"""Withholds what a client releases, so that its QoS 2 publications stay in flight at the broker."""

import asyncio
import contextlib

from federator.runtime.mqtt.wire import PUBREL, packet_length
from tests.tcp_server import serving


class Withheld:
    """Between clients and the broker at ``target``; an async context manager.

    Attributes:
        wanted: So many PUBRELs are withheld from now on; then all that clients send waits.
        withheld: How many are.
    """

    def __init__(self, target):
        self.target = target
        self.wanted = self.withheld = 0
        self._open = asyncio.Event()
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self):
        self.port = await self._stack.enter_async_context(serving(self._pass_on))
        return self

    async def __aexit__(self, *error):
        await self._stack.aclose()

    @property
    def url(self):
        return f"mqtt://127.0.0.1:{self.port}"

    def withhold(self, wanted):
        """Keep back PUBRELs, until ``wanted`` publications wait for theirs."""
        self.wanted, self.withheld = wanted, 0
        self._open.clear()

    def let_go(self):
        """Pass on what waits, and all that comes."""
        self.wanted = 0
        self._open.set()

    async def _pass_on(self, reader, writer):
        broker_reader, broker_writer = await asyncio.open_connection("127.0.0.1", self.target)
        try:
            ways = self._up(reader, broker_writer), self._down(broker_reader, writer)
            tasks = [asyncio.create_task(way) for way in ways]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            broker_writer.transport.abort()
            writer.transport.abort()

    async def _down(self, reader, writer):
        while chunk := await reader.read(65_536):
            writer.write(chunk)
            await writer.drain()

    async def _up(self, reader, writer):
        buffer, kept = bytearray(), bytearray()
        while chunk := await reader.read(65_536):
            buffer += chunk
            while (length := packet_length(buffer)) is not None and length <= len(buffer):
                packet = bytes(buffer[:length])
                del buffer[:length]
                if packet[0] == PUBREL and self.wanted:
                    kept += packet
                    self.withheld += 1
                    if self.withheld >= self.wanted:
                        await self._open.wait()
                        writer.write(kept)
                        kept.clear()
                elif not writer.is_closing():
                    writer.write(packet)
            await writer.drain()
