"""One broker that is read: its head, its guide, and our questions and answers there.

Who it is it says itself, in its guide or its head, whichever comes first; the directory tells
whether to believe it. Until then, and when it is not believed, it is only listened to.
"""

from typing import Final, Protocol

from mqtt5 import QoS, TopicFilter

from federator.collector.collection import Question
from federator.config import BrokerAddress
from federator.protocol.messages.topics import (
    guide_topic,
    metrics_again_topic,
    metrics_ask_topic,
    metrics_head_topic,
)
from federator.protocol.telemetry.records import encode
from federator.protocol.telemetry.replay import Ask
from federator.protocol.types import BrokerId
from federator.runtime.mqtt.endpoint import endpoint_of
from federator.runtime.mqtt.link import Inbound, MqttLink

SEND_QUEUE_BYTES_MAX: Final = 65_536
"""Questions are all we send."""

FAILED_ATTEMPTS: Final = 3
"""Failed attempts after which another address is tried when a guide tells one."""


class SourceObserver(Protocol):
    """The one to whom sources report."""

    def on_readable(self, source: "Source") -> None:
        """The source's subscriptions stand: answers can come."""

    def on_gone(self, source: "Source") -> None:
        """The source's connection ended."""

    def on_guide(self, source: "Source", payload: bytes) -> None:
        """A guide came."""

    def on_head(self, source: "Source", payload: bytes) -> None:
        """A head came."""

    def on_answer(self, source: "Source", payload: bytes) -> None:
        """A message came on our own topic."""


class Source:
    """One connection.

    Args:
        connection: Where, and who we are there.
        federation: Whose.
        name: Ours, unique among connections: two addresses may lead to one broker.
        token: A secret: who does not know it cannot answer in the agent's place. Brokers tell
            client ids on their log topics, so it is not in the name.
        listener: Told what happens.

    Attributes:
        url: Where.
        broker: Who it is, once that is known and believed.
    """

    def __init__(
        self,
        connection: BrokerAddress,
        *,
        federation: str,
        name: str,
        token: str,
        listener: SourceObserver,
    ) -> None:
        self.url = connection.url
        self.broker: BrokerId | None = None
        self._attempts_at_last = 0
        self._listener = listener
        self._token = token
        self._guide = guide_topic(federation)
        self._head = metrics_head_topic(federation)
        self._ask = metrics_ask_topic(federation)
        self._again = metrics_again_topic(federation, token)
        self.link = MqttLink(
            endpoint_of(connection),
            self,
            client_id=f"federator-collector-{name}",
            send_queue_bytes_max=SEND_QUEUE_BYTES_MAX,
        )
        topics = (self._guide, self._head, self._again)
        self.link.subscribe([TopicFilter(t, max_qos=QoS.AT_LEAST_ONCE) for t in topics])

    @property
    def failing(self) -> bool:
        """Whether it was tried for a while in vain."""
        tried = self.link.counters.attempts - self._attempts_at_last
        return not self.link.connected and tried >= FAILED_ATTEMPTS

    def ask(self, question: Question) -> bool:
        """Ask; ``False`` when there is no connection."""
        first, last = question.first, question.last
        ask = Ask(spool=question.spool, first=first, last=last, to=self._token)
        return self.link.publish(self._ask, encode(ask), urgent=True)

    # -- what the link tells ---------------------------------------------------------------------

    def on_up(self, link: MqttLink, session_present: bool) -> None:
        """The broker accepted us."""
        self._attempts_at_last = link.counters.attempts

    def on_subscribed(self, link: MqttLink) -> None:
        """Answers can come."""
        self._listener.on_readable(self)

    def on_down(self, link: MqttLink, reason: str) -> None:
        """The connection ended."""
        self._listener.on_gone(self)

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        """The agent speaks, or somebody who pretends to be."""
        for packet, _, _ in publishes:
            topic, payload = packet.topic, bytes(packet.payload)
            if topic == self._again:
                self._listener.on_answer(self, payload)
            elif topic == self._head and payload:
                self._listener.on_head(self, payload)
            elif topic == self._guide and payload:
                self._listener.on_guide(self, payload)
