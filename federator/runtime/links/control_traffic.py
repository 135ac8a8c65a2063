"""Control messages over MQTT, counted by kind, and by neighbour where metrics are kept.

Source: docs/metrics.md, "control".
"""

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import structlog
from mqtt5 import PublishPacket, QoS, TopicFilter, Will

from federator.errors import DecodeError
from federator.protocol.links.links import Links
from federator.protocol.messages.codec import CONTROL_KINDS, decode, encode, kind_of
from federator.protocol.messages.control import Bye, Hello, Message, Solicit, sender_of
from federator.protocol.messages.subjects import subjects
from federator.protocol.messages.topics import DOCTORS_WORD, control_topic, outbox_topic
from federator.protocol.rate_limiter import RateLimiter
from federator.protocol.telemetry.records import Direction
from federator.protocol.trust.guard import CONTROL
from federator.protocol.types import BrokerId, ConnId, Millis
from federator.runtime.links.neighbour_links import NeighbourLink, NeighbourLinks
from federator.runtime.links.turned_away import TurnedAwayLog, reads_as_signed
from federator.runtime.mqtt.link import MqttLink
from federator.runtime.mqtt.subscriptions import live_filter
from federator.runtime.process.clocks import monotonic_ms
from federator.runtime.trust.guarding import Trust, TurnedAwayError

COMPLAINT_GAP_MS = Millis(60_000)
"""Least time between two log lines about malformed messages of one kind."""

PEERS_MAX: Final = 4_096
"""Pairs of peer and kind in one window; any client may invent an id on a control topic."""

_log = structlog.get_logger()


class PeerTraffic:
    """Messages sent and received by peer. Peers are links (out) and broker ids (in)."""

    def __init__(self) -> None:
        self._counts: dict[tuple[Hashable, str, Direction], list[int]] = {}

    def note(self, peer: Hashable, kind: str, direction: Direction, size: int) -> None:
        """Count a message of ``size`` bytes."""
        key = (peer, kind, direction)
        counts = self._counts.get(key)
        if counts is None:
            if len(self._counts) >= PEERS_MAX:
                key = (None, kind, direction)
            counts = self._counts.setdefault(key, [0, 0])
        counts[0] += 1
        counts[1] += size

    def take(
        self, broker_of: Callable[[Hashable], BrokerId | None]
    ) -> dict[tuple[BrokerId | None, str, Direction], tuple[int, int]]:
        """Messages and bytes by neighbour, kind and direction, since the last call."""
        counts, self._counts = self._counts, {}
        totals: dict[tuple[BrokerId | None, str, Direction], tuple[int, int]] = {}
        for (peer, kind, direction), (messages, size) in counts.items():
            key = (broker_of(peer), kind, direction)
            before = totals.get(key, (0, 0))
            totals[key] = (before[0] + messages, before[1] + size)
        return totals


@dataclass(kw_only=True, eq=False, repr=False)
class ControlTraffic:
    """Sends, receives and counts the control messages of one agent.

    Args:
        members: The brokers that messages may be about; ``None``: any broker.

    Attributes:
        sent, sent_bytes, received, malformed, dropped, refused: Messages (or bytes) by kind.
        presumed: Dropped messages about other brokers than ``members``, by kind.
    """

    federation: str
    links: Links
    connections: NeighbourLinks
    trust: Trust | None
    peers: PeerTraffic | None
    members: frozenset[BrokerId] | None = None
    sent: Counter[str] = field(default_factory=Counter, init=False)
    sent_bytes: Counter[str] = field(default_factory=Counter, init=False)
    received: Counter[str] = field(default_factory=Counter, init=False)
    malformed: Counter[str] = field(default_factory=Counter, init=False)
    dropped: Counter[str] = field(default_factory=Counter, init=False)
    refused: Counter[str] = field(default_factory=Counter, init=False)
    presumed: Counter[str] = field(default_factory=Counter, init=False)

    def __post_init__(self) -> None:
        self._kind_of = {control_topic(self.federation, kind): kind for kind in CONTROL_KINDS}
        ours = {
            outbox_topic(self.federation, self.links.self_id, kind): kind for kind in CONTROL_KINDS
        }
        self._kind_at = self._kind_of | ours
        self._complaints: RateLimiter[str] = RateLimiter(
            gap_ms=COMPLAINT_GAP_MS, keys_max=2 * len(CONTROL_KINDS)
        )
        self._encoded: tuple[Message | None, bytes] = (None, b"")
        self.turned_away = TurnedAwayLog()

    def subscriptions(self) -> list[TopicFilter]:
        """Our subscriptions on our own broker. Without retained messages: they are not current."""
        return [live_filter(topic, QoS.AT_MOST_ONCE, no_local=True) for topic in self._kind_of]

    def neighbour_at(self, link: MqttLink) -> BrokerId | None:
        """The neighbour at the other end of ``link``, once its hello named it."""
        neighbour = self.connections.having(link)
        conn = neighbour.conn if neighbour is not None else None
        connection = self.links.connections.get(conn) if conn is not None else None
        return connection.neighbour if connection is not None else None

    def tell(self, neighbour: BrokerId, message: Message) -> None:
        """Send ``message`` to a neighbour, if there is a connection to its broker."""
        link = self.link_to(neighbour)
        if link is not None:
            self.send(link, message)

    def link_to(self, neighbour: BrokerId) -> MqttLink | None:
        """The control connection to a neighbour's broker, if there is one."""
        state = self.links.neighbours.get(neighbour)
        there = self.connections.behind_conn(state.conn) if state and state.conn else None
        return None if there is None else there.control

    def send_over(self, conn: ConnId, message: Message) -> None:
        """Send ``message`` over a connection, if it still exists."""
        there = self.connections.behind_conn(conn)
        if there is not None:
            self.send(there.control, message)

    def send(self, link: MqttLink, message: Message) -> None:
        """Publish ``message`` before any waiting data.

        Messages about retained values are data, and wait their turn.
        """
        urgent = kind_of(message) != "retained"
        self.send_by(link, message, partial(link.publish, urgent=urgent))

    def send_by(
        self, link: MqttLink, message: Message, publish: Callable[[str, bytes], bool]
    ) -> None:
        """Give ``message``, made for the agent at the other end of ``link``, to ``publish``."""
        kind = kind_of(message)
        payload = self._payload(link, kind, message)
        if payload is not None and publish(self._topic(link, kind), payload):
            self.sent[kind] += 1
            self.sent_bytes[kind] += len(payload)
            if self.peers is not None:
                self.peers.note(link, kind, "out", len(payload))
        else:
            self.dropped[kind] += 1

    def _topic(self, link: MqttLink, kind: str) -> str:
        neighbour = self.connections.having(link)
        if neighbour is None:
            return control_topic(self.federation, kind)
        return neighbour.topic(self.federation, kind)

    def will(self, neighbour: NeighbourLink, conn: ConnId) -> Will:
        """Our bye, for the broker at the other end to publish when it loses us."""
        bye = Bye(self.links.self_id, self.links.epoch, conn)
        kind, payload = kind_of(bye), encode(bye)
        if self.trust is not None:
            payload = self.trust.guard.greet(kind, payload, None, will=True)
        return Will(neighbour.topic(self.federation, kind), payload=payload)

    def _payload(self, link: MqttLink, kind: str, message: Message) -> bytes | None:
        """The wire form; ``None`` without a handshake with the agent at the other end.

        One message goes to many: it is encoded, and proven, once.
        """
        trust = self.trust
        if self._encoded[0] is not message:
            proven = message if trust is None else trust.guard.prove(message)
            self._encoded = (message, encode(proven))
        body = self._encoded[1]
        if trust is None:
            return body
        if isinstance(message, Hello | Bye):
            return trust.guard.greet(kind, body, self.links.addressee(message.conn))
        to = self.neighbour_at(link)
        return None if to is None else trust.guard.seal(CONTROL, kind, body, to)

    def _has_namesake(self, hello: Hello) -> bool:
        return self.links.has_namesake(hello, now_ms=monotonic_ms())

    def carries(self, topic: str) -> bool:
        """Whether ``topic`` carries control messages."""
        return topic in self._kind_at

    def refuse(self, topic: str) -> None:
        """Count a message on ``topic`` that is dropped unread."""
        self.refused[self._kind_at[topic]] += 1

    def receive(self, packet: PublishPacket) -> Message | None:
        """Decode ``packet``, on a topic that ``carries`` messages; ``None`` if it is refused."""
        kind = self._kind_at[packet.topic]
        if packet.payload == DOCTORS_WORD:
            return None
        try:
            if self.trust is None:
                message = decode(kind, packet.payload)
            else:
                message = self.trust.read(kind, packet.payload, self._has_namesake)
        except TurnedAwayError as error:
            self.turned_away.note(kind, packet.payload, str(error), now_ms=monotonic_ms())
            return None
        except DecodeError as error:
            self._on_malformed(kind, packet.payload, str(error))
            return None
        if self.members is not None and not subjects(message) <= self.members:
            if not isinstance(message, Solicit):  # a leaf may ask each of two hubs for the other
                self._on_presumed(kind, sender_of(message))
            return None
        self.received[kind] += 1
        if self.peers is not None:
            self.peers.note(sender_of(message), kind, "in", len(packet.payload))
        return message

    def _on_presumed(self, kind: str, sender: BrokerId | None) -> None:
        self.presumed[kind] += 1
        if self._complaints.allow(f"presumed {kind}", monotonic_ms()):
            so_far = self.presumed[kind]
            _log.warning("control.presumed", kind=kind, neighbour=sender, so_far=so_far)

    def _on_malformed(self, kind: str, payload: bytes, reason: str) -> None:
        now_ms = monotonic_ms()
        self.malformed[kind] += 1
        manner = None if self.trust is not None else reads_as_signed(payload)
        if manner is not None:
            reason = f"it is {manner}, and we are open: give us keys too, or it none (security)"
        hello = self.turned_away.note(kind, payload, reason, now_ms=now_ms)
        if self._complaints.allow(kind, now_ms):
            sender = {} if hello is None else {"neighbour": hello.sender, "address": hello.address}
            so_far = self.malformed[kind]
            _log.warning("control.malformed", kind=kind, **sender, reason=reason, so_far=so_far)
