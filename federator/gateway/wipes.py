"""Sessions left behind on brokers, to be ended there.

A persistent session whose client lives elsewhere would gather messages for ever, and would give
them all again should the client come back. So the gateway ends it: at once where the client was
moved, or when a dead broker is there again.
"""

import asyncio
from dataclasses import replace
from typing import Final

import structlog

from federator.gateway.brokers import Broker
from federator.gateway.wire import (
    FROM_SERVER,
    V5,
    Connect,
    MalformedError,
    Property,
    Splitter,
    read_connack,
    with_value,
    write_connect,
    write_disconnect,
)
from federator.protocol.types import BrokerId

WAITING_MAX: Final = 10_000
"""Sessions per broker that are remembered while it is away."""

AT_ONCE: Final = 16
ATTEMPT_S: Final = 5.0
READ_BYTES: Final = 4_096
ANSWER_BYTES_MAX: Final = 65_536

_log = structlog.get_logger()


class Wipes:
    """What is to be ended where."""

    def __init__(self) -> None:
        self._waiting: dict[BrokerId, dict[str, Connect]] = {}
        self._limit = asyncio.Semaphore(AT_ONCE)

    def add(self, connect: Connect, broker: Broker, tasks: asyncio.TaskGroup) -> None:
        """End the session that ``connect`` began at ``broker``."""
        waiting = self._waiting.setdefault(broker.id, {})
        if len(waiting) < WAITING_MAX:
            waiting[connect.client_id] = connect
        if broker.up:
            self.on_up(broker, tasks)

    def cancel(self, client_id: str, broker: BrokerId) -> None:
        """The client is at ``broker`` again: its session is in use."""
        self._waiting.get(broker, {}).pop(client_id, None)

    def on_up(self, broker: Broker, tasks: asyncio.TaskGroup) -> None:
        """``broker`` is there."""
        for client_id in [*self._waiting.get(broker.id, {})]:
            tasks.create_task(self._wipe(client_id, broker), name=f"wipe {client_id}")

    async def _wipe(self, client_id: str, broker: Broker) -> None:
        async with self._limit:
            connect = self._waiting.get(broker.id, {}).pop(client_id, None)
            if connect is None:
                return
            blank = replace(connect, clean=True, will=None)
            if blank.version == V5:
                properties = with_value(blank.properties, Property.SESSION_EXPIRY, 0)
                blank = replace(blank, properties=properties)
            try:
                async with asyncio.timeout(ATTEMPT_S):
                    done = await _visit(broker, blank)
            except (OSError, TimeoutError, MalformedError):
                done = False
            if not done:
                _log.info("gateway.session_left", client=client_id, broker=broker.id)


async def _visit(broker: Broker, connect: Connect) -> bool:
    """Connect with a clean session and leave; tell whether the broker let us in."""
    address = broker.address
    reader, writer = await asyncio.open_connection(address.host, address.port, ssl=broker.tls)
    try:
        writer.write(write_connect(connect))
        splitter = Splitter(limit=ANSWER_BYTES_MAX, firsts=FROM_SERVER)
        while chunk := await reader.read(READ_BYTES):
            block, packets = splitter.feed(chunk)
            if packets:
                taken = not read_connack(block, packets[0], connect.version).reason
                writer.write(write_disconnect(0, connect.version))
                await writer.drain()
                return taken
    finally:
        writer.close()
    return False
