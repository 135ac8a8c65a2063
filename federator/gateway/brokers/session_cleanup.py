"""Sessions left behind on brokers, to be ended there.

A persistent session whose client lives elsewhere would gather messages for ever, and would give
them all again should the client come back. So the gateway ends it: at once where the client was
moved, or when a dead broker is there again.

Source: docs/gateway.md, "Sessions".
"""

import asyncio
from dataclasses import replace
from typing import Final

import structlog

from federator.gateway.brokers.connections import Broker
from federator.gateway.wire import V5, Connect, Property, with_value, write_connect
from federator.protocol.types import BrokerId
from federator.runtime.mqtt.session_packets import wipe_session

WAITING_MAX: Final = 10_000
"""Sessions per broker that are remembered while it is away."""

AT_ONCE: Final = 16
ATTEMPT_S: Final = 5.0

_log = structlog.get_logger()


class SessionCleanup:
    """The sessions that are to be ended, and where."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._waiting: dict[BrokerId, dict[str, Connect]] = {}
        self._limit = asyncio.Semaphore(AT_ONCE)

    def add(self, connect: Connect, broker: Broker) -> None:
        """End the session that ``connect`` began at ``broker``."""
        waiting = self._waiting.setdefault(broker.id, {})
        if len(waiting) < WAITING_MAX:
            waiting[connect.client_id] = connect
        if broker.up:
            self.on_up(broker)

    def cancel(self, client_id: str, broker: BrokerId) -> None:
        """Keep a session after all: the client is at ``broker`` again."""
        self._waiting.get(broker, {}).pop(client_id, None)

    def on_up(self, broker: Broker) -> None:
        """End the sessions that wait for ``broker``, which is there."""
        for client_id in [*self._waiting.get(broker.id, {})]:
            self._tasks.create_task(self._end(client_id, broker), name=f"wipe {client_id}")

    async def _end(self, client_id: str, broker: Broker) -> None:
        async with self._limit:
            connect = self._waiting.get(broker.id, {}).pop(client_id, None)
            if connect is None:  # cancelled while others were ended
                return
            blank = replace(connect, clean=True, will=None)
            if blank.version == V5:
                properties = with_value(blank.properties, Property.SESSION_EXPIRY, 0)
                blank = replace(blank, properties=properties)
            try:
                async with asyncio.timeout(ATTEMPT_S):
                    done = await wipe_session(broker.endpoint, write_connect(blank))
            except (OSError, TimeoutError):
                done = False
            if not done:
                _log.info("gateway.session_left", client=client_id, broker=broker.id)
