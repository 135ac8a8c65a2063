"""How long our broker takes to give a publication to a client: we publish one to ourselves.

Delays in the stream run from agent to agent. What a client sees has two more legs: from the
publisher by its broker to the agent, and from the agent by its broker to the subscriber. Both are
what this measures: one client writes, the broker passes on, another one wakes up and reads.

Source: docs/metrics.md, "agents".
"""

import time

from mqtt5 import PublishPacket, QoS, RetainHandling, TopicFilter

from federator.protocol.messages.topics import echo_topic
from federator.runtime.mqtt.link import MqttLink


class BrokerEcho:
    """One publication to ourselves at a time.

    Args:
        link: The control connection to our own broker.
        federation: The federation's name.
        broker: Our id.
    """

    def __init__(self, link: MqttLink, *, federation: str, broker: int) -> None:
        self.topic = echo_topic(federation, broker)
        self._link = link
        self._sent = b""
        self._sent_ns = 0
        self._round_trip_us: int | None = None

    def subscription(self) -> TopicFilter:
        """What the control connection subscribes: our own publications, for once."""
        return TopicFilter(
            self.topic, max_qos=QoS.AT_MOST_ONCE, retain_handling=RetainHandling.SEND_NEVER
        )

    def call(self) -> None:
        """Publish an echo, and forget the one before."""
        self._sent_ns = time.monotonic_ns()
        self._sent = b"%d" % self._sent_ns
        self._link.publish(self.topic, self._sent)

    def on_echo(self, packet: PublishPacket) -> None:
        """One came: ours, unless somebody else publishes here."""
        if packet.payload == self._sent:
            self._sent = b""
            self._round_trip_us = (time.monotonic_ns() - self._sent_ns) // 1_000

    def take_us(self) -> int | None:
        """What was measured since this was last asked."""
        taken, self._round_trip_us = self._round_trip_us, None
        return taken
