"""The sending half of a client: filters and publications, on whatever connection there is.

Nothing here waits: publications are accepted or refused at once. QoS 0 goes into the connection's
bounded queue; the session keeps what awaits an acknowledgement beyond the connection.

Source: OASIS MQTT 5.0; docs/ARCHITECTURE.md, "The link".
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from mqtt5 import PublishPacket, QoS, TopicFilter

from federator.protocol.forwarding.publications import Place
from federator.runtime.mqtt.session import MQTT_PACKET_BYTES_MAX, MqttSession
from federator.runtime.mqtt.transport import FLUSH_BYTES, PacketTransport
from federator.runtime.mqtt.window import ERROR, TAKEN_BYTES, BrokerLimits
from federator.runtime.mqtt.wire import (
    PACKET_TOO_LARGE,
    Out,
    is_publish,
    packet_id_at,
    raise_qos,
    split_run,
)


@dataclass(slots=True)
class LinkCounters:
    """Counters of a link since it was made. Bytes are those of MQTT packets, without TLS.

    Attributes:
        publishes_dropped: Publications refused or lost: no room, or no connection. QoS 0 ones that
            the transport or the kernel held when a connection broke are not among them.
        publishes_rejected: Publications that the broker does not take: longer than its maximum, or
            QoS 1 and 2 ones that it answered with an error.
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
        self._session.window.on_refused = self._refused
        self._counters = LinkCounters()
        self._pipe: PacketTransport | None = None
        self._up = False
        # Lower once the broker refused a packet as too large.
        self._learnt_bytes_max = MQTT_PACKET_BYTES_MAX
        # To be called when all other packets are handled.
        self._too_long: list[Callable[[], None]] = []

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
        """Bytes that wait in the send queues, without those the transport holds."""
        return self._pipe.queued_bytes if self._pipe is not None else 0

    @property
    def waiting_bytes(self) -> int:
        """Bytes that wait in our queues or in the transport: the kernel did not take them yet."""
        return self.queued_bytes + (self._pipe.backlog_bytes if self._pipe is not None else 0)

    @property
    def idle(self) -> bool:
        """Whether the kernel took everything."""
        return not self.waiting_bytes

    @property
    def bytes_arrived(self) -> int:
        """Bytes sent on this link that arrived at the other end, as far as the kernel reports."""
        pipe, sent = self._pipe, self._counters.bytes_out
        return sent if pipe is None else sent + pipe.bytes_out - pipe.undelivered_bytes

    @property
    def stint(self) -> tuple[int, int]:
        """A pair that changes after the kernel took everything, and with each connection.

        It changes with the next packet sent: without one it may stay.
        """
        return self._counters.connects, self._pipe.emptied if self._pipe is not None else 0

    @property
    def urgent_bytes(self) -> int:
        """Bytes of urgent packets that wait in the send queues."""
        return self._pipe.urgent_bytes if self._pipe is not None else 0

    @property
    def packet_bytes_max(self) -> int:
        """The longest packet that the broker accepts, by its CONNACK or by experience."""
        limit = self.limits.packet_bytes_max if self.limits is not None else MQTT_PACKET_BYTES_MAX
        return min(limit, self._learnt_bytes_max)

    @property
    def packet_bytes_sure(self) -> int:
        """The longest packet that the broker surely accepts; 0 while packets wait for an answer."""
        return 0 if self._session.window.awaits_word else self._session.window.taken_bytes

    @property
    def unacknowledged(self) -> int:
        """QoS 1 and 2 messages accepted and not yet acknowledged by the broker."""
        return self._session.window.in_flight + self._session.window.waiting

    @property
    def waiting(self) -> int:
        """Unacknowledged messages that were not sent on this connection."""
        return self._session.window.waiting

    @property
    def offered(self) -> int:
        """Position of the last QoS 1 or 2 message accepted."""
        return self._session.window.offered

    @property
    def settled_through(self) -> int:
        """Up to this position, the broker acknowledged every QoS 1 and 2 message."""
        return self._session.window.settled_through

    @property
    def room(self) -> bool:
        """Whether half of the room for unacknowledged messages is still free."""
        return 2 * self._session.window.bytes < self._queue_bytes_max

    @property
    def session_number(self) -> int:
        """The number of the broker's session, which ``acknowledge`` asks for."""
        return self._session.number

    # Subscribing and publishing

    def subscribe(self, filters: Iterable[TopicFilter], *, identifier: int | None = None) -> None:
        """Subscribe ``filters``, now and after every reconnect.

        Args:
            identifier: A Subscription Identifier, until they are subscribed again or the
                connection ends.
        """
        out: Out = []
        self._session.subscriptions.subscribe(filters, out, identifier=identifier)
        self._send(out)

    def subscribe_again(self) -> None:
        """Repeat our SUBSCRIBEs so that the broker logs them again; nothing else changes."""
        out: Out = []
        self._session.subscriptions.again(out)
        self._send(out)

    def unsubscribe(self, filters: Iterable[str]) -> None:
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
        """Publish; ``False`` when the publication was dropped (and counted).

        QoS 0 needs a connection and room. QoS 1 and 2 need room, and are kept until acknowledged;
        ``on_answer`` then gets the broker's reason code.
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
            short = []
            for packet in split_run(run):
                if len(packet) <= self.limits.packet_bytes_max:
                    short.append(packet)
                else:
                    self._refused(packet, PACKET_TOO_LARGE)
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
            How many were accepted; there was no room to keep the others.
        """
        out: Out = []
        taken = self._session.window.offer_run(run, places, out)
        self._counters.publishes_dropped += len(places) - taken
        self._counters.publishes_out += taken
        self._send(out)
        return taken

    def try_packet(self, packet: bytes, on_too_long: Callable[[], None]) -> bool:
        """Send a QoS 0 PUBLISH packet at QoS 1, so that the broker answers; ``False`` when dropped.

        Later packets wait behind it, so that order is kept if it must be cut. Mosquitto does not
        announce its longest payload (``message_size_limit``): it drops longer ones silently at QoS
        0 and refuses them at QoS 1. After a refusal ``packet_bytes_max`` is the next length to try,
        half as long, and ``on_too_long`` is called.
        """
        if not self._up:
            self._counters.publishes_dropped += 1
            return False
        tried = raise_qos(packet)
        tried.on_too_long = on_too_long
        answered = partial(self._on_tried, len(packet), on_too_long)
        return self.publish_packet(tried, packet_id_at(tried), 1, answered)

    def _on_tried(self, size: int, on_too_long: Callable[[], None], reason: int) -> None:
        window = self._session.window
        if reason < ERROR:
            window.taken_bytes = max(window.taken_bytes, size)
        elif reason == PACKET_TOO_LARGE:
            window.taken_bytes = 0  # the broker may take less than before
            self._learnt_bytes_max = min(self._learnt_bytes_max, size // 2)
            self._too_long.append(on_too_long)

    def _forget_sizes(self, *, hung_up: bool) -> None:
        """Reset the limits after a lost connection: the next broker may be configured differently.

        A broker that hung up may have done so for a packet that was tried: Mosquitto 2.0.11 does
        with ``max_queued_messages 0``. Like all of QoS 0, the tried packets are not sent again.
        """
        self._too_long.clear()
        tried = max(self._session.window.forget_tried(), default=0)
        self._session.window.taken_bytes = TAKEN_BYTES
        if not hung_up:
            self._learnt_bytes_max = MQTT_PACKET_BYTES_MAX
        elif tried:
            self._learnt_bytes_max = min(self._learnt_bytes_max, tried // 2)

    def _log_too_long(self) -> None:
        """Call ``on_too_long`` of each packet that was too long."""
        while self._too_long:
            out: Out = []
            self._session.window.go_another_way(self._too_long.pop(0), out)
            self._send(out)

    def acknowledge(self, packet_ids: Iterable[tuple[int, int]], *, session_number: int) -> None:
        """Acknowledge publications, as (packet id, QoS), in the order received.

        Identifiers of another session than ``session_number`` are stale and ignored.
        """
        if self._up and session_number == self._session.number:
            out: Out = []
            self._session.acknowledge_all(packet_ids, out)
            self._send(out)

    def _refused(self, packet: bytes | bytearray, reason: int) -> None:
        """Count a publication that the broker refused with this reason code, or would."""
        self._counters.publishes_rejected += 1

    def _send(self, out: Out) -> None:
        """Send the session's packets, control packets first.

        The session keeps what may get lost.
        """
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
            if sum(map(len, publishes)) < FLUSH_BYTES:
                publishes = [b"".join(publishes)]
            for packet in publishes:
                pipe.send(packet, refusable=False)
