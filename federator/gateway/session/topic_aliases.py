"""Topic aliases: short numbers that an MQTT 5 client sends instead of topics.

An alias holds for one connection, and a client's connection outlives those to brokers. So the
gateway keeps the topic of each alias, and always sends brokers the topic.

Source: OASIS MQTT 5.0, 3.3.2.3.4.
"""

from typing import Final

from federator.gateway import wire
from federator.gateway.wire.kinds import MalformedError, Packet, Reason

ALIASES_MAX: Final = 16
"""Per client; each may stand for 65,535 bytes. Mosquitto allows 10."""


class TopicAliases:
    """The aliases of one client.

    Attributes:
        allowed: How many it may use: as its first broker allows, at most ``ALIASES_MAX``.
    """

    __slots__ = ("_topics", "allowed")

    def __init__(self) -> None:
        self.allowed = 0
        self._topics: dict[int, str] = {}

    def allow(self, properties: wire.Properties) -> None:
        """Allow as many as a CONNACK with ``properties`` does."""
        name = wire.Property.TOPIC_ALIAS_MAXIMUM
        self.allowed = min(wire.number_in(properties, name, 0), ALIASES_MAX)

    def resolve(
        self, block: bytes, packet: Packet, header: wire.PublishHeader
    ) -> tuple[str, bytes]:
        """Read a PUBLISH with an alias; return its topic, and the packet with the topic instead.

        Raises:
            MalformedError: The alias is too great, or has no topic yet.
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
