"""An HTTP proxy that knows CONNECT and nothing else."""

import asyncio
import contextlib


class HttpProxy:
    """Listens at ``port`` of this host; an async context manager.

    Attributes:
        asked: The request lines so far.
        answer: What every request is answered; ``None``: it is let through.
    """

    def __init__(self, *, answer=None):
        self.asked, self.answer = [], answer
        self._tasks, self._writers = set(), []

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error):
        self._server.close()
        for task in self._tasks:
            task.cancel()

    def hang_up(self):
        """Break all connections that are open, wherever they are in what they carry."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    async def _serve(self, reader, writer):
        self._tasks.add(asyncio.current_task())
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            line = head.split(b"\r\n")[0].decode()
            self.asked.append(line)
            if self.answer is not None:
                writer.write(self.answer)
                writer.close()
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
