"""A link that runs while a test does, and what its handler was told."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import mqtt5

from federator.runtime.mqtt.link import Endpoint, Inbound, LinkObserver, MqttLink
from tests.real.polling import until


class Recorder(LinkObserver):
    """Keeps everything, copied, and checks that chunk and packets agree."""

    def __init__(self) -> None:
        self.ups: list[bool] = []
        self.downs: list[str] = []
        self.subscribed = 0
        self.packets: list[mqtt5.PublishPacket] = []

    @property
    def payloads(self) -> list[bytes]:
        return [packet.payload for packet in self.packets]

    def on_up(self, link: MqttLink, session_present: bool) -> None:
        assert link.connected
        self.ups.append(session_present)

    def on_subscribed(self, link: MqttLink) -> None:
        assert link.subscribed
        self.subscribed += 1

    def on_down(self, link: MqttLink, reason: str) -> None:
        assert not link.connected
        self.downs.append(reason)

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        for packet, start, end in publishes:
            again, size = mqtt5.read(chunk[start:end])
            assert isinstance(again, mqtt5.PublishPacket)
            assert (size, again.topic) == (end - start, packet.topic)
            self.packets.append(packet)


@contextlib.asynccontextmanager
async def running(
    port: int, recorder: Recorder, *filters: str, wait: bool = True, **arguments: Any
) -> AsyncIterator[MqttLink]:
    """A link to 127.0.0.1:``port`` that has subscribed ``filters``; cancelled at the end.

    Without ``wait`` it has only begun to connect.
    """
    endpoint = arguments.pop("endpoint", None) or Endpoint("127.0.0.1", port)
    arguments.setdefault("client_id", "federator-test")
    arguments.setdefault("reconnect_max_ms", 200)
    link = MqttLink(endpoint, recorder, **arguments)
    link.subscribe([mqtt5.TopicFilter(pattern) for pattern in filters])
    task = asyncio.create_task(link.run(), name="link under test")
    try:
        if wait:
            await until(lambda: link.subscribed, "subscribed")
        yield link
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
