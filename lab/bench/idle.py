"""Clients that connect, subscribe to something, and then do nothing: half of each MQTT version.

Source: the project's bound on a gateway's memory.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from federator.errors import LinkError
from federator.gateway import wire
from federator.gateway.wire import V5, V311, Kind

AT_ONCE = 50
"""Connections being made."""

ANSWER_TIMEOUT_S = 30.0
SETTLE_S = 2.0
"""What was needed only to connect is given back meanwhile."""


@contextlib.asynccontextmanager
async def idle_clients(host: str, port: int, *, count: int) -> AsyncIterator[None]:
    """``count`` clients while the context lasts. Raises ``LinkError``: one was not let in."""
    room = asyncio.Semaphore(AT_ONCE)
    writers: list[asyncio.StreamWriter] = []

    async def connect(number: int) -> None:
        async with room, asyncio.timeout(ANSWER_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(host, port)
            writers.append(writer)
            version = V5 if number % 2 else V311
            hello = wire.Connect(version, f"idle-{number}", clean=True, keep_alive=600)
            wish = wire.Subscribe(1, ((f"idle/{number}", 1),))
            writer.write(wire.write_connect(hello) + wire.write_request(wish, version))
            splitter = wire.Splitter(limit=1_000, firsts=wire.FROM_SERVER)
            heard: list[int] = []
            while Kind.SUBACK not in heard:
                data = await reader.read(1_000)
                _, packets = splitter.feed(data)
                heard += [packet[0] for packet in packets]
                if not data or splitter.fault is not None:
                    raise LinkError(f"idle client {number} was not let in")

    try:
        try:
            await asyncio.gather(*(connect(number) for number in range(count)))
        except (OSError, TimeoutError) as error:
            raise LinkError(f"{len(writers)} of {count} idle clients connected: {error}") from error
        await asyncio.sleep(SETTLE_S)
        yield
    finally:
        for writer in writers:
            writer.close()
