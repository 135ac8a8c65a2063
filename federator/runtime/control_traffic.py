"""Control messages to and from MQTT, counted by kind."""

import time
from collections import Counter

import structlog
from mqtt5 import PublishPacket, QoS, RetainHandling, TopicFilter

from federator.errors import DecodeError
from federator.protocol.codec import CONTROL_KINDS, decode, encode, kind_of
from federator.protocol.messages import Message, RepairRequest
from federator.runtime.metrics_stream.peers import PeerTraffic
from federator.runtime.mqtt_link import MqttLink

COMPLAINT_GAP_S = 60.0
"""Least time between two lines about malformed messages of one kind."""

_log = structlog.get_logger()


class ControlTraffic:
    """Encodes, decodes and counts the control messages of one agent.

    Attributes:
        sent, sent_bytes, received, malformed, dropped: Messages (or bytes) by kind.
        peers: Counts by neighbour too, if somebody wants to know.
    """

    def __init__(self, federation: str) -> None:
        self.peers: PeerTraffic | None = None
        self.sent: Counter[str] = Counter()
        self.sent_bytes: Counter[str] = Counter()
        self.received: Counter[str] = Counter()
        self.malformed: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self._topic_of = {kind: f"$fed/{federation}/{kind}" for kind in CONTROL_KINDS}
        self._kind_of = {topic: kind for kind, topic in self._topic_of.items()}
        self._quiet_until_s: dict[str, float] = {}
        self._encoded: tuple[Message | None, bytes] = (None, b"")

    def subscriptions(self) -> list[TopicFilter]:
        """What to subscribe on our own broker. Retained messages are nobody's word: none."""
        return [
            TopicFilter(
                topic,
                max_qos=QoS.AT_MOST_ONCE,
                no_local=True,
                retain_handling=RetainHandling.SEND_NEVER,
            )
            for topic in self._kind_of
        ]

    def address(self, message: Message) -> tuple[str, bytes]:
        """Topic and payload of ``message``. One message goes to many: it is encoded once."""
        if self._encoded[0] is not message:
            self._encoded = (message, encode(message))
        return self._topic_of[kind_of(message)], self._encoded[1]

    def send(self, link: MqttLink, message: Message) -> None:
        """Publish ``message`` before any waiting data, unless it is about retained values: those
        are data, and wait their turn.
        """
        topic, payload = self.address(message)
        kind = self._kind_of[topic]
        if link.publish(topic, payload, urgent=kind != "retained"):
            self.sent[kind] += 1
            self.sent_bytes[kind] += len(payload)
            if self.peers is not None:
                self.peers.note(link, kind, "out", len(payload))
        else:
            self.dropped[kind] += 1

    def receive(self, packet: PublishPacket) -> Message | None:
        """The message in ``packet``; ``None`` when it is not control traffic or malformed."""
        kind = self._kind_of.get(packet.topic)
        if kind is None:
            return None
        try:
            message = decode(kind, packet.payload)
        except DecodeError as error:
            self.malformed[kind] += 1
            self._complain(kind, error)
            return None
        self.received[kind] += 1
        if self.peers is not None:
            sender = message.path[-1] if isinstance(message, RepairRequest) else message.sender
            self.peers.note(sender, kind, "in", len(packet.payload))
        return message

    def _complain(self, kind: str, error: DecodeError) -> None:
        now_s = time.monotonic()
        if now_s >= self._quiet_until_s.get(kind, now_s):
            self._quiet_until_s[kind] = now_s + COMPLAINT_GAP_S
            so_far = self.malformed[kind]
            _log.warning("control.malformed", kind=kind, reason=str(error), so_far=so_far)
