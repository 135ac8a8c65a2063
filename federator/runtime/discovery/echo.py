"""We publish to ourselves, over the connection that hears the broker's log: marks among its lines.

Two things are learned from them. A line that the broker dropped shows with whatever comes next
(``protocol.discovery.continuity``), so something must; and when marks are late, so are the lines.
And how long our broker takes to give a publication to a client: delays in the metrics stream run
from agent to agent, and what a client sees has two more legs, from the publisher by its broker to
the agent, and from the agent by its broker to the subscriber. Both are what a mark's way measures:
one client writes, the broker passes on, another one wakes up and reads.

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
from federator.runtime.mqtt.own_words import OwnWords

GAP_S: Final = 0.5
"""Between two marks: a loss is noticed within a second."""


@dataclass(kw_only=True, eq=False, repr=False)
class BrokerEcho:
    """Publishes marks, and hears them."""

    link: MqttLink
    federation: str
    broker: int
    sent: Callable[[], None]  # told when a mark was published
    came: Callable[[Millis], None]  # told when it came back, and when it had been published

    def __post_init__(self) -> None:
        self.topic = echo_topic(self.federation, self.broker)
        self._own_words = OwnWords()
        self._last_us = 0
        self._round_trip_us: int | None = None

    async def run(self) -> None:
        """Publish marks until cancelled."""
        while True:
            # Not on the beat: what else begins then would be measured, too.
            await asyncio.sleep(GAP_S)
            if self.link.connected:
                self.sent()
                self._last_us = time.monotonic_ns() // 1_000
                self.link.publish(self.topic, self._own_words.say(self._last_us), qos=1)

    def on_echo(self, packet: PublishPacket) -> None:
        """One came: ours, unless somebody else publishes here."""
        sent_us, now_us = self._own_words.hear(packet), time.monotonic_ns() // 1_000
        if sent_us is not None:
            self.came(Millis(sent_us // 1_000))
            if sent_us == self._last_us:
                self._round_trip_us = now_us - sent_us

    def take_us(self) -> int | None:
        """What was measured since this was last asked."""
        taken, self._round_trip_us = self._round_trip_us, None
        return taken
