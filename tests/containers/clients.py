"""Ordinary clients, which reconnect by themselves, keep their sessions and count what they saw."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Self

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from tests.containers.compose_grid import HOST, until

KEEPALIVE_S = 10


class Client:
    """A connection that is made again whenever it ends; its session lasts."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.mqtt = mqtt.Client(CallbackAPIVersion.VERSION2, client_id=name, clean_session=False)
        self.mqtt.reconnect_delay_set(min_delay=1, max_delay=1)
        self.mqtt.max_queued_messages_set(0)  # no bound: what a test publishes is bounded
        self.mqtt.on_connect = self._connected
        self._port = port

    def __enter__(self) -> Self:
        self.mqtt.connect_async(HOST, self._port, KEEPALIVE_S)
        self.mqtt.loop_start()
        until(self.mqtt.is_connected, f"{self.name} is connected")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.mqtt.disconnect()
        self.mqtt.loop_stop()

    def _connected(self, *_: object) -> None:
        """Nothing to do."""


class Subscriber(Client):
    """Counts each payload on ``filter``, QoS 1."""

    def __init__(self, name: str, port: int, filter: str) -> None:
        super().__init__(name, port)
        self.seen: Counter[bytes] = Counter()
        self.granted = threading.Event()
        self._filter = filter
        self.mqtt.on_message = lambda client, userdata, message: self.seen.update(
            [bytes(message.payload)]
        )
        self.mqtt.on_subscribe = lambda *_: self.granted.set()

    def __enter__(self) -> Self:
        super().__enter__()
        until(self.granted.is_set, f"{self.name} has its subscription")
        return self

    def _connected(self, *_: object) -> None:
        self.mqtt.subscribe(self._filter, qos=1)


class Publisher(Client):
    """Publishes at QoS 1; paho repeats what was not acknowledged after it connected again."""

    def __init__(self, name: str, port: int) -> None:
        super().__init__(name, port)
        self.acknowledged = 0
        self.published: list[bytes] = []
        self.mqtt.on_publish = self._counted

    def publish(self, topic: str, payload: bytes) -> None:
        """Publish once; the payload must be a new one."""
        self.published.append(payload)
        self.mqtt.publish(topic, payload, qos=1)

    def all_acknowledged(self) -> bool:
        """Whether the broker has everything."""
        return self.acknowledged == len(self.published)

    def publish_until(self, stop: Callable[[], bool], topic: str, rate_per_s: float) -> None:
        """Publish numbered payloads at an even rate while ``stop()`` does not hold."""
        due = time.monotonic()
        while not stop():
            self.publish(topic, f"{self.name} {len(self.published)}".encode())
            due += 1 / rate_per_s
            time.sleep(max(0.0, due - time.monotonic()))

    def _counted(self, *_: object) -> None:
        self.acknowledged += 1
