"""Control messages to and from MQTT, counted by kind."""

import time
from collections import Counter
from collections.abc import Callable

import structlog
from mqtt5 import PublishPacket, QoS, RetainHandling, TopicFilter, Will

from federator.errors import DecodeError
from federator.protocol.codec import CONTROL_KINDS, decode, encode, kind_of
from federator.protocol.messages import Bye, Hello, Message, sender_of
from federator.protocol.own_topics import control_topic
from federator.protocol.trust.guard import CONTROL
from federator.protocol.types import BrokerId
from federator.runtime.metrics_stream.peers import PeerTraffic
from federator.runtime.mqtt_link import MqttLink
from federator.runtime.trust import Trust

COMPLAINT_GAP_S = 60.0
"""Least time between two lines about malformed messages of one kind."""

_log = structlog.get_logger()


class ControlTraffic:
    """Encodes, decodes and counts the control messages of one agent.

    Args:
        federation: The federation's name.
        whose: The neighbour at the other end of a connection, if that is known.
        trust: Seals what is sent and judges what comes; ``None`` in an open federation.

    Attributes:
        sent, sent_bytes, received, malformed, dropped: Messages (or bytes) by kind.
        peers: Counts by neighbour too, if somebody wants to know.
    """

    def __init__(
        self,
        federation: str,
        *,
        trust: Trust | None,
        whose: Callable[[MqttLink], BrokerId | None] = lambda link: None,
    ) -> None:
        self._whose = whose
        self._trust = trust
        self.peers: PeerTraffic | None = None
        self.sent: Counter[str] = Counter()
        self.sent_bytes: Counter[str] = Counter()
        self.received: Counter[str] = Counter()
        self.malformed: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self._topic_of = {kind: control_topic(federation, kind) for kind in CONTROL_KINDS}
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

    def send(self, link: MqttLink, message: Message) -> None:
        """Publish ``message`` before any waiting data, unless it is about retained values: those
        are data, and wait their turn.
        """
        kind = kind_of(message)
        payload = self._payload(link, kind, message)
        if payload is not None and link.publish(
            self._topic_of[kind], payload, urgent=kind != "retained"
        ):
            self.sent[kind] += 1
            self.sent_bytes[kind] += len(payload)
            if self.peers is not None:
                self.peers.note(link, kind, "out", len(payload))
        else:
            self.dropped[kind] += 1

    def will(self, bye: Bye) -> Will:
        """``bye`` for our neighbour's broker to publish when it loses us."""
        kind, payload = kind_of(bye), encode(bye)
        if self._trust is not None:
            payload = self._trust.guard.greet(kind, payload, None, will=True)
        return Will(self._topic_of[kind], payload=payload)

    def _payload(self, link: MqttLink, kind: str, message: Message) -> bytes | None:
        """The wire form; ``None`` when whoever is there has not shaken hands.

        One message goes to many: it is encoded, and proven, once.
        """
        trust = self._trust
        if self._encoded[0] is not message:
            proven = message if trust is None else trust.guard.prove(message)
            self._encoded = (message, encode(proven))
        body = self._encoded[1]
        if trust is None:
            return body
        to = self._whose(link)
        if isinstance(message, Hello | Bye):
            return trust.guard.greet(kind, body, to)
        return None if to is None else trust.guard.seal(CONTROL, kind, body, to)

    def receive(self, packet: PublishPacket) -> Message | None:
        """The message in ``packet``; ``None`` when it is not control traffic or malformed."""
        kind = self._kind_of.get(packet.topic)
        if kind is None:
            return None
        try:
            trust = self._trust
            decoded = decode if trust is None else trust.read
            message = decoded(kind, packet.payload)
        except DecodeError as error:
            self.malformed[kind] += 1
            self._complain(kind, error)
            return None
        if message is None:
            return None
        self.received[kind] += 1
        if self.peers is not None:
            self.peers.note(sender_of(message), kind, "in", len(packet.payload))
        return message

    def _complain(self, kind: str, error: DecodeError) -> None:
        now_s = time.monotonic()
        if now_s >= self._quiet_until_s.get(kind, now_s):
            self._quiet_until_s[kind] = now_s + COMPLAINT_GAP_S
            so_far = self.malformed[kind]
            _log.warning("control.malformed", kind=kind, reason=str(error), so_far=so_far)
