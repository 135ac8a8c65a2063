"""Short numbers that a client of MQTT 5 gives its topics, and the topics that it means.

An alias holds for one connection, and a client's outlives those to its brokers. So the gateway
keeps what each stands for, and brokers always get the topic.

Source: OASIS MQTT 5.0, 3.3.2.3.4.
"""

from typing import Final

from federator.gateway import wire
from federator.gateway.wire.kinds import MalformedError, Packet, Reason

ALIASES_MAX: Final = 16
"""Of one client; each may stand for 65,535 bytes. Mosquitto allows 10."""


class TopicAliases:
    """The aliases of one client.

    Attributes:
        allowed: How many it may have; its first broker's word, and ``ALIASES_MAX`` at most.
    """

    __slots__ = ("_topics", "allowed")

    def __init__(self) -> None:
        self.allowed = 0
        self._topics: dict[int, str] = {}

    def allow(self, properties: wire.Properties) -> None:
        """Allow what a CONNACK with ``properties`` allows."""
        name = wire.Property.TOPIC_ALIAS_MAXIMUM
        self.allowed = min(wire.number_in(properties, name, 0), ALIASES_MAX)

    def resolve(
        self, block: bytes, packet: Packet, header: wire.PublishHeader
    ) -> tuple[str, bytes]:
        """Read a PUBLISH that has an alias; return its topic, and the packet with that instead.

        Raises:
            MalformedError: The alias is beyond what is allowed, or was never given a topic.
        """
        topic, _, id_at, alias = header
        if alias > self.allowed:
            text = f"the topic alias {alias}: {self.allowed} are allowed"
            raise MalformedError(text, Reason.TOPIC_ALIAS_INVALID)
        if topic:
            self._topics[alias] = topic
        elif alias not in self._topics:
            text = f"the topic alias {alias}, which stands for nothing"
            raise MalformedError(text, Reason.PROTOCOL_ERROR)
        topic = self._topics[alias]
        return topic, wire.with_topic(block, packet, topic, id_at)
