"""A TCP server of a test, of which nothing is left open when the test ends."""

import asyncio
import contextlib

ACCEPTED_TURNS = 20
"""Turns of the loop in which who was accepted just now is served, however slow the machine."""


async def hang_up(_reader, _writer):
    """Answer nothing."""


@contextlib.asynccontextmanager
async def serving(answer, **options):
    """Serve each connection by ``answer(reader, writer)``; yields the port, on 127.0.0.1.

    At the end, of ``answer`` or of all, a connection is closed: one that is left open fails some
    other test of the process, which collects it.
    """
    serves = set()

    async def serve(reader, writer):
        serves.add(asyncio.current_task())
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await answer(reader, writer)
        except asyncio.CancelledError:
            writer.transport.abort()  # whatever it still has to write
            raise
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, **options)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for _ in range(ACCEPTED_TURNS):
            await asyncio.sleep(0)
        for each in serves:
            each.cancel()
        await asyncio.gather(*serves, return_exceptions=True)
