"""What one client asks of its broker, on whatever connection there is: filters and publications.

Nothing here waits: publications are taken or refused at once. QoS 0 goes into the connection's
bounded queue; what is owed an acknowledgement, the session keeps over connections.

Source: OASIS MQTT 5.0; docs/ARCHITECTURE.md, "The link".
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from mqtt5 import PublishPacket, QoS, TopicFilter

from federator.protocol.forwarding.publications import Place
from federator.runtime.mqtt.session import MqttSession
from federator.runtime.mqtt.transport import PacketTransport
from federator.runtime.mqtt.window import BrokerLimits
from federator.runtime.mqtt.wire import Out, is_publish, packet_id_at, split_run


@dataclass(slots=True)
class LinkCounters:
    """What happened on a link since it was made. Bytes are those of MQTT packets, without TLS.

    Attributes:
        publishes_dropped: Publications refused or lost: no room, no connection, or too long. QoS 0
            ones that the transport or the kernel held when a connection broke are not among them.
        publishes_rejected: QoS 1 and 2 publications the broker answered with an error.
    """

    bytes_in: int = 0
    bytes_out: int = 0
    publishes_in: int = 0
    publishes_out: int = 0
    publishes_dropped: int = 0
    publishes_rejected: int = 0
    attempts: int = 0
    connects: int = 0


class PacketSender:
    """The sending half of a client: its session, and the connection that carries it, if any."""

    def __init__(self, *, queue_bytes_max: int, acknowledge: bool) -> None:
        self.limits: BrokerLimits | None = None
        self._queue_bytes_max = queue_bytes_max
        self._session = MqttSession(queue_bytes_max=queue_bytes_max, acknowledge=acknowledge)
        self.answered = self._session.subscriptions.answered
        self.recall = self._session.subscriptions.recall  # before the first connection
        self._counters = LinkCounters()
        self._pipe: PacketTransport | None = None
        self._up = False

    # State

    @property
    def connected(self) -> bool:
        """Whether the broker accepted the connection, and it is not lost."""
        return self._up

    @property
    def subscribed(self) -> bool:
        """Whether the client is connected, and every subscription was answered."""
        return self._up and self._session.subscriptions.settled

    @property
    def refused_filters(self) -> dict[str, int]:
        """Wanted filters that the broker refused, with its reason codes."""
        return dict(self._session.subscriptions.refused)

    @property
    def wanted_filters(self) -> list[str]:
        """The filters that were subscribed and not unsubscribed."""
        return self._session.subscriptions.wanted

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait in the send queues, beside those the transport holds."""
        return self._pipe.queued_bytes if self._pipe is not None else 0

    @property
    def idle(self) -> bool:
        """Whether nothing waits, in our queues or beyond: the kernel took everything."""
        pipe = self._pipe
        return pipe is None or not (pipe.queued_bytes or pipe.backlog_bytes)

    @property
    def bytes_arrived(self) -> int:
        """Bytes sent since the link was made that the other end has, as far as the kernel tells."""
        pipe, sent = self._pipe, self._counters.bytes_out
        return sent if pipe is None else sent + pipe.bytes_out - pipe.undelivered_bytes

    @property
    def stint(self) -> tuple[int, int]:
        """Another pair whenever the queues were empty for a moment, or the connection is another.

        While nothing ever waits it may stay.
        """
        return self._counters.connects, self._pipe.emptied if self._pipe is not None else 0

    @property
    def urgent_bytes(self) -> int:
        """Bytes of urgent packets that wait in the send queues."""
        return self._pipe.urgent_bytes if self._pipe is not None else 0

    @property
    def unacknowledged(self) -> int:
        """QoS 1 and 2 messages taken and not yet acknowledged by the broker."""
        return self._session.window.in_flight + self._session.window.waiting

    @property
    def offered(self) -> int:
        """Position of the last QoS 1 or 2 message taken."""
        return self._session.window.offered

    @property
    def settled_through(self) -> int:
        """Up to this position, the broker acknowledged every QoS 1 and 2 message."""
        return self._session.window.settled_through

    @property
    def room(self) -> bool:
        """Whether half of what may be kept for the broker is still free."""
        return 2 * self._session.window.bytes < self._queue_bytes_max

    @property
    def session_number(self) -> int:
        """The number of the broker's session, which ``acknowledge`` asks for."""
        return self._session.number

    # Subscribing and publishing

    def subscribe(self, filters: Iterable[TopicFilter], *, identifier: int | None = None) -> None:
        """Want ``filters``, now and after every reconnect.

        Args:
            identifier: A Subscription Identifier, until they are subscribed again or the
                connection ends.
        """
        out: Out = []
        self._session.subscriptions.subscribe(filters, out, identifier=identifier)
        self._send(out)

    def subscribe_again(self) -> None:
        """Let the broker log once more what we subscribe; nothing comes of it."""
        out: Out = []
        self._session.subscriptions.again(out)
        self._send(out)

    def unsubscribe(self, filters: Iterable[str]) -> None:
        """Want ``filters`` no longer."""
        out: Out = []
        self._session.subscriptions.unsubscribe(filters, out)
        self._send(out)

    def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        qos: int = 0,
        urgent: bool = False,
        on_answer: Callable[[int], None] | None = None,
    ) -> bool:
        """Publish; ``False`` when it was dropped (and counted).

        QoS 0 needs a connection and room. QoS 1 and 2 need room, and are kept until acknowledged;
        ``on_answer`` then hears the broker's reason code.
        """
        if qos == 0:
            return self.write_packets((PublishPacket(topic, payload).write(),), 1, urgent=urgent)
        packet = bytearray(PublishPacket(topic, payload, qos=QoS(qos), packet_id=1).write())
        return self.publish_packet(packet, packet_id_at(packet), qos, on_answer)

    def write_packets(
        self, parts: Sequence[bytes | memoryview], count: int, *, urgent: bool = False
    ) -> bool:
        """Send a run of ``count`` ready-made QoS 0 PUBLISH packets; ``False`` when dropped.

        The parts are copied. They may cut packets anywhere.
        """
        run = b"".join(parts)
        pipe = self._pipe
        if not self._up or pipe is None or self.limits is None:
            self._counters.publishes_dropped += count
            return False
        if len(run) > self.limits.packet_bytes_max:
            short = [p for p in split_run(run) if len(p) <= self.limits.packet_bytes_max]
            self._counters.publishes_dropped += count - len(short)
            run, count = b"".join(short), len(short)
            if not short:
                return False
        if not pipe.send(run, urgent=urgent, at_once=True, publications=count):
            self._counters.publishes_dropped += count
            return False
        self._counters.publishes_out += count
        return True

    def publish_packet(
        self,
        packet: bytearray,
        packet_id_at: int,
        qos: int,
        on_answer: Callable[[int], None] | None = None,
    ) -> bool:
        """Send a ready-made QoS 1 or 2 PUBLISH packet; ``False`` when there is no room to keep it.

        Args:
            packet: Ours from now on: its identifier and DUP flag are written in place.
        """
        out: Out = []
        if not self._session.window.offer(packet, packet_id_at, qos, out, on_answer):
            self._counters.publishes_dropped += 1
            return False
        self._counters.publishes_out += 1
        self._send(out)
        return True

    def publish_run(self, run: bytes, places: Sequence[Place]) -> int:
        """Send the QoS 1 and 2 PUBLISH packets at ``places`` of ``run``, in order.

        Returns:
            How many were taken; there was no room to keep the others.
        """
        out: Out = []
        taken = self._session.window.offer_run(run, places, out)
        self._counters.publishes_dropped += len(places) - taken
        self._counters.publishes_out += taken
        self._send(out)
        return taken

    def acknowledge(self, packet_ids: Iterable[tuple[int, int]], *, session_number: int) -> None:
        """Acknowledge publications, as (packet id, QoS), in the order received.

        Identifiers of another session than ``session_number`` are stale and ignored.
        """
        if self._up and session_number == self._session.number:
            out: Out = []
            self._session.acknowledge_all(packet_ids, out)
            self._send(out)

    def _send(self, out: Out) -> None:
        """Send what the session asks for: control first. The session keeps what may get lost."""
        pipe = self._pipe
        if pipe is None or not out:
            return
        if len(out) == 1:
            pipe.send(out[0], urgent=not is_publish(out[0]), refusable=False)
            return
        control = [packet for packet in out if not is_publish(packet)]
        if control:
            pipe.send(b"".join(control), urgent=True, refusable=False)
        if len(control) < len(out):
            publishes = [packet for packet in out if is_publish(packet)] if control else out
            pipe.send(b"".join(publishes), refusable=False)
