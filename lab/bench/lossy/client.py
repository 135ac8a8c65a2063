"""A publisher or a subscriber as a child process, in whatever network namespace it was started.

Payloads carry a number and the time they were handed to the client, by the clock that all processes
of a machine share. Orders come one per line on stdin; it ends with its stdin.
"""

import asyncio
import json
import struct
import sys
import time
from typing import Any, Final

import structlog
from mqtt5 import QoS, TopicFilter

from federator.runtime.mqtt.link import Endpoint, Inbound, LinkObserver, MqttLink
from lab.grid.processes.children import answer, orders

PAYLOAD_BYTES: Final = 64
_STAMP: Final = struct.Struct(">QQ")


class Client(LinkObserver):
    """One end of the flow. ``came``: (number, delay in microseconds) as they came."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.came: list[tuple[int, int]] = []
        self._sent = 0
        self._topic: str = order["topic"]
        self.link = MqttLink(
            Endpoint(order["host"], order["port"]), self, client_id=order["client_id"]
        )
        if order["role"] == "subscriber":
            self.link.subscribe([TopicFilter(self._topic, max_qos=QoS.AT_LEAST_ONCE)])

    async def publish(self, count: int, rate_hz: float, qos: int) -> int:
        """So many, evenly; the number of the first."""
        loop = asyncio.get_running_loop()
        first, begun_s = self._sent, loop.time()
        for i in range(count):
            await asyncio.sleep(max(0.0, begun_s + i / rate_hz - loop.time()))
            stamp = _STAMP.pack(self._sent, time.monotonic_ns())
            self._sent += 1
            self.link.publish(self._topic, stamp.ljust(PAYLOAD_BYTES, b"\0"), qos=qos)
        return first

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        """Note what came, and how old it was."""
        now_ns = time.monotonic_ns()
        for packet, _, _ in publishes:
            number, sent_ns = _STAMP.unpack_from(packet.payload)
            self.came.append((number, (now_ns - sent_ns) // 1_000))


async def _serve(order: dict[str, Any]) -> None:
    client = Client(order)
    running = asyncio.create_task(client.link.run())
    async for told in orders():
        found: dict[str, Any] = {"connected": client.link.subscribed}
        if "publish" in told:
            how = told["rate_hz"], told.get("qos", 0)
            found["first"] = await client.publish(told["publish"], *how)
        elif "came" in told:
            found["came"] = client.came
            client.came = []
        answer(found)
    running.cancel()


def main() -> None:
    """Serve until stdin ends; our log goes to stderr, for stdout carries the answers."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    asyncio.run(_serve(json.loads(sys.argv[1])))


if __name__ == "__main__":
    main()
