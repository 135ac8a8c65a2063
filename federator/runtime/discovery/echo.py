"""Publishes marks to ourselves, over the connection that receives the broker's log.

They serve two purposes. A log line that the broker dropped shows with the next message
(``protocol.discovery.continuity``), so there must be one; and late marks mean late lines. And they
measure how long our broker takes to deliver a publication to a client: delays in the metrics stream
run from agent to agent, and a client sees two more legs, from the publisher by its broker to the
agent, and from the agent by its broker to the subscriber. A mark's way measures both: one client
writes, the broker forwards, another one wakes up and reads.

Source: docs/protocol.md 9; docs/metrics.md, "agents".
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mqtt5 import PublishPacket

from federator.protocol.messages.topics import echo_topic
from federator.protocol.types import Millis
from federator.runtime.mqtt.link import MqttLink
from federator.runtime.mqtt.own_marks import OwnMarks
from federator.runtime.mqtt.parts import Part
from federator.runtime.mqtt.subscriptions import live_filter

GAP_S: Final = 0.5
"""Between two marks: a loss is noticed within a second."""


@dataclass(kw_only=True, eq=False, repr=False)
class BrokerEcho:
    """Publishes marks, and receives them."""

    link: MqttLink
    federation: str
    broker: int
    sent: Callable[[], None]  # called when a mark was published
    came: Callable[[Millis], None]  # called when it came back, with the time of its publishing

    def __post_init__(self) -> None:
        self.topic = echo_topic(self.federation, self.broker)
        self._own_marks = OwnMarks()
        self._last_us = 0
        self._round_trip_us: int | None = None

    def part(self, *, publishes: bool) -> Part:
        # At the QoS of the log: in order with its lines, and counted like them.
        return Part(
            subscriptions=[live_filter(self.topic)],
            topics={self.topic: self.on_echo},
            tasks={"marks": self.run} if publishes else {},
        )

    async def run(self) -> None:
        while True:
            # Not on the beat: tasks that begin then would distort the measurement.
            await asyncio.sleep(GAP_S)
            if self.link.connected:
                self.sent()
                self._last_us = time.monotonic_ns() // 1_000
                self.link.publish(self.topic, self._own_marks.write(self._last_us), qos=1)

    def on_echo(self, packet: PublishPacket) -> None:
        """Handle a received mark; ignore those of other clients."""
        sent_us, now_us = self._own_marks.read(packet), time.monotonic_ns() // 1_000
        if sent_us is not None:
            self.came(Millis(sent_us // 1_000))
            if sent_us == self._last_us:
                self._round_trip_us = now_us - sent_us

    def take_us(self) -> int | None:
        """The measurement since the last call."""
        taken, self._round_trip_us = self._round_trip_us, None
        return taken
