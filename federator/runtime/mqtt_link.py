"""A client of one broker that stays: connects, subscribes, publishes, reconnects for ever.

Nothing here waits for the broker: publications are taken or refused at once, and what arrives is
handed over a whole socket read at a time, from the socket's callback. ``run`` only makes one
connection after another and backs off in between; the work happens in callbacks.

Source: docs/ARCHITECTURE.md, "The link"; OASIS MQTT 5.0.
"""

import asyncio
import contextlib
import logging
import math
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import structlog
from mqtt5 import (
    ConnAckPacket,
    ConnAckReasonCode,
    DisconnectPacket,
    Packet,
    PingRespPacket,
    PublishPacket,
    QoS,
    TopicFilter,
    Will,
)

from federator.errors import LinkError
from federator.runtime.backoff import Backoff
from federator.runtime.mqtt_connection import Connection
from federator.runtime.mqtt_endpoint import Endpoint
from federator.runtime.mqtt_failures import (
    TakenOverError,
    check_greeting,
    dismissal,
    explain,
    refusal,
)
from federator.runtime.mqtt_introduction import Introduction
from federator.runtime.mqtt_session import BrokerLimits, Session
from federator.runtime.mqtt_transport import PacketTransport
from federator.runtime.mqtt_wire import (
    Inbound,
    Out,
    is_publish,
    packet_id_at,
    read_packets,
    split_run,
)

PACKET_BYTES_MAX = 16 * 1024 * 1024
SEND_QUEUE_BYTES_MAX = 16 * 1024 * 1024
CONNECT_TIMEOUT_S = 5.0
TAKEN_OVER_PAUSE_S = 30.0
"""Two clients with one id would throw each other out for ever: who was thrown out waits."""

__all__ = ["Endpoint", "Inbound", "LinkCounters", "LinkHandler", "MqttLink"]

_EXPECTED = (OSError, UnicodeError, LinkError)  # UnicodeError: of an impossible host name

_log = structlog.get_logger()


@dataclass(slots=True)
class LinkCounters:
    """What happened on a link since it was made. Bytes are those of MQTT packets, without TLS.

    Attributes:
        publishes_dropped: Publications refused or lost: no room, no connection, or too long. QoS 0
            ones that the transport or the kernel held when a connection broke are not among them.
        publishes_rejected: QoS 1 and 2 publications the broker answered with an error.
        attempts: Connections tried.
        connects: Connections the broker accepted.
    """

    bytes_in: int = 0
    bytes_out: int = 0
    publishes_in: int = 0
    publishes_out: int = 0
    publishes_dropped: int = 0
    publishes_rejected: int = 0
    attempts: int = 0
    connects: int = 0


class LinkHandler(Protocol):
    """Told what happens on a link, synchronously and from the socket's callback: be quick.

    An exception out of any of these is a bug of ours and comes out of ``MqttLink.run``.
    """

    def on_up(self, link: "MqttLink", session_present: bool) -> None:
        """The broker accepted the connection; subscriptions are on their way."""

    def on_subscribed(self, link: "MqttLink") -> None:
        """Every wanted subscription was answered: after each connection and after each change."""

    def on_down(self, link: "MqttLink", reason: str) -> None:
        """A connection that was up is gone."""

    def on_publishes(self, link: "MqttLink", chunk: memoryview, publishes: list[Inbound]) -> None:
        """All publications of one socket read, in order, each QoS 2 one once.

        ``chunk`` is reused as soon as this returns: copy what must stay.
        """


class MqttLink:
    """One client id at one broker.

    Args:
        endpoint: The broker.
        handler: Told what happens.
        client_id: Ours at that broker.
        clean_start: The first connection of ``run`` starts a new session. Later ones resume it when
            ``session_expiry_s`` is positive, and start a new one otherwise. A session to be resumed
            is wiped first, and begun without a clean start: see ``session_wipe``.
        session_expiry_s: How long the broker keeps the session after a connection.
        keep_alive_s: A silent broker is given up after this long at the latest (half of it without
            a sign of life, after a PINGREQ).
        will: Published by the broker when we vanish; a callable is asked before each connection.
        reconnect_min_ms: Upper bound of the first delay before reconnecting.
        reconnect_max_ms: Upper bound of every such delay.
        send_queue_bytes_max: Bound of each send queue, and of unacknowledged QoS 1 and 2 messages.
        packet_bytes_max: A longer packet from the broker closes the connection.
        connect_timeout_s: From the first SYN to CONNACK.
        taken_over_pause_s: Wait this long after another client came with our client id.
        rng: Source of jitter.
        acknowledge: Acknowledge publications once the handler returned. When false, the owner calls
            ``acknowledge`` for each QoS 1 and 2 publication.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        handler: LinkHandler,
        *,
        client_id: str,
        clean_start: bool = True,
        session_expiry_s: int = 0,
        keep_alive_s: int = 10,
        will: Will | Callable[[], Will | None] | None = None,
        reconnect_min_ms: int = 100,
        reconnect_max_ms: int = 5_000,
        send_queue_bytes_max: int = SEND_QUEUE_BYTES_MAX,
        packet_bytes_max: int = PACKET_BYTES_MAX,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        taken_over_pause_s: float = TAKEN_OVER_PAUSE_S,
        rng: random.Random | None = None,
        acknowledge: bool = True,
    ) -> None:
        self.endpoint: Final = endpoint
        self.client_id = client_id
        self.last_error: str | None = None
        self.refused_with: ConnAckReasonCode | None = None
        self.taken_over = False  # the last connection ended so
        self.closed_by_broker = False  # the last connection ended so, without a word
        self.limits: BrokerLimits | None = None
        self._handler = handler
        self._introduction = Introduction(
            client_id=client_id,
            username=endpoint.username,
            password=endpoint.password,
            clean_start=clean_start,
            session_expiry_s=session_expiry_s,
            keep_alive_s=keep_alive_s,
            will=will,
            packet_bytes_max=packet_bytes_max,
        )
        self._send_queue_bytes_max = send_queue_bytes_max
        self._packet_bytes_max = packet_bytes_max
        self._connect_timeout_s = connect_timeout_s
        self._taken_over_pause_s = taken_over_pause_s
        self._resume_at_s = 0.0
        self._due_s = math.inf  # by when run() looks after the link again; never, unless it runs
        self._backoff = Backoff(
            min_ms=reconnect_min_ms, max_ms=reconnect_max_ms, rng=rng or random.Random()
        )
        self._session = Session(queue_bytes_max=send_queue_bytes_max, acknowledge=acknowledge)
        self._counters = LinkCounters()
        self._pipe: PacketTransport | None = None
        self._connection: Connection | None = None
        self._up = False
        self._stopping = asyncio.Event()
        self._logged_error: str | None = None
        self._rejection_logged = False
        self._log = _log.bind(client_id=client_id, broker=endpoint.place)

    # State

    @property
    def connected(self) -> bool:
        """The broker accepted the connection and it is not lost."""
        return self._up

    @property
    def subscribed(self) -> bool:
        """Connected, and every subscription was answered."""
        return self._up and self._session.subscriptions.settled

    @property
    def refused_filters(self) -> dict[str, int]:
        """Wanted filters that the broker refused, with its reason codes."""
        return dict(self._session.subscriptions.refused)

    @property
    def wanted_filters(self) -> list[str]:
        """What was subscribed and not unsubscribed."""
        return self._session.subscriptions.wanted

    def answered(self, filters: Iterable[str]) -> bool:
        """Whether the broker answered every change to the subscriptions of ``filters``."""
        return self._session.subscriptions.answered(filters)

    @property
    def overdue_s(self) -> float:
        """How long ``run`` is behind the time by which it meant to look after the link again.

        It is 0 while the link is looked after, also when its broker is away: then ``run`` tries
        again, or waits for a time of its own choice.
        """
        return max(0.0, time.monotonic() - self._due_s)

    @property
    def queued_bytes(self) -> int:
        """Bytes that wait in the send queues, beside those the transport holds."""
        return self._pipe.queued_bytes if self._pipe is not None else 0

    @property
    def idle(self) -> bool:
        """Nothing waits, in our queues or beyond: the kernel took everything."""
        pipe = self._pipe
        return pipe is None or not (pipe.queued_bytes or pipe.backlog_bytes)

    @property
    def urgent_bytes(self) -> int:
        """Those of them that are urgent."""
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
        """The broker acknowledged every QoS 1 and 2 message up to this position."""
        return self._session.window.settled_through

    @property
    def room(self) -> bool:
        """Whether half of what may be kept for the broker is still free."""
        return 2 * self._session.window.bytes < self._send_queue_bytes_max

    @property
    def session_number(self) -> int:
        """Names the broker's session; see ``acknowledge``."""
        return self._session.number

    @property
    def counters(self) -> LinkCounters:
        """A copy, up to date."""
        pipe = self._pipe
        return replace(
            self._counters,
            bytes_in=self._counters.bytes_in + (pipe.bytes_in if pipe else 0),
            bytes_out=self._counters.bytes_out + (pipe.bytes_out if pipe else 0),
            publishes_dropped=self._counters.publishes_dropped + self._session.window.oversized,
            publishes_rejected=self._session.window.rejected,
        )

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

    def unsubscribe(self, filters: Iterable[str]) -> None:
        """Want ``filters`` no longer."""
        out: Out = []
        self._session.subscriptions.unsubscribe(filters, out)
        self._send(out)

    def recall(self, filters: Iterable[str]) -> None:
        """Before ``run``: an earlier process subscribed ``filters``, maybe; drop those not wanted.

        A broker that is killed comes back with the session that it saved last.
        """
        self._session.subscriptions.recall(filters)

    def publish(self, topic: str, payload: bytes, *, qos: int = 0, urgent: bool = False) -> bool:
        """Publish; ``False`` when it was dropped (and counted).

        QoS 0 needs a connection and room. QoS 1 and 2 need room, and are kept until acknowledged.
        """
        if qos == 0:
            return self.write_packets((PublishPacket(topic, payload).write(),), 1, urgent=urgent)
        packet = bytearray(PublishPacket(topic, payload, qos=QoS(qos), packet_id=1).write())
        return self.publish_packet(packet, packet_id_at(packet), qos)

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

    def publish_packet(self, packet: bytearray, packet_id_at: int, qos: int) -> bool:
        """Send a ready-made QoS 1 or 2 PUBLISH packet; ``False`` when there is no room to keep it.

        Args:
            packet: Ours from now on: its identifier and DUP flag are written in place.
            packet_id_at: Where the identifier stands.
            qos: 1 or 2, as in the packet.
        """
        out: Out = []
        if not self._session.window.offer(packet, packet_id_at, qos, out):
            self._counters.publishes_dropped += 1
            return False
        self._counters.publishes_out += 1
        self._send(out)
        return True

    def acknowledge(self, packet_ids: Iterable[tuple[int, int]], *, session_number: int) -> None:
        """Acknowledge publications, as (packet id, QoS), in the order received.

        Identifiers of another session than ``session_number`` are stale and ignored.
        """
        if self._up and session_number == self._session.number:
            out: Out = []
            for packet_id, qos in packet_ids:
                self._session.acknowledge(packet_id, qos, out)
            self._send(out)

    def _send(self, out: Out) -> None:
        """Send what the session asks for: control first. The session keeps what may get lost."""
        pipe = self._pipe
        if pipe is None or not out:
            return
        if len(out) == 1:
            pipe.send(out[0], urgent=not is_publish(out[0]), refusable=False)
            return
        control = b"".join([packet for packet in out if not is_publish(packet)])
        if control:
            pipe.send(control, urgent=True, refusable=False)
        publishes = b"".join([packet for packet in out if is_publish(packet)])
        if publishes:
            pipe.send(publishes, refusable=False)

    # Receiving

    def _on_read(self, chunk: memoryview) -> int:
        """Handle every whole packet in ``chunk``; return where the rest begins."""
        if not self._up:
            check_greeting(chunk)
        publishes: list[Inbound] = []
        others: list[Packet] = []
        out: Out = []
        used = 0
        failure: LinkError | None = None
        try:
            used = read_packets(chunk, publishes, others)
        except LinkError as error:
            failure = error
        for packet in others:
            try:
                self._on_packet(packet, out)
            except LinkError as error:  # what came before it still counts
                failure = error
                break
        if out and publishes:  # what the window released goes before what the handler publishes
            self._send(out)
            out = []
        if publishes and self._up:
            admitted = self._session.admit(publishes, out)
            self._counters.publishes_in += len(admitted)
            if admitted:
                self._handler.on_publishes(self, chunk, admitted)
        if out:
            self._send(out)
        if failure is not None:
            raise failure
        if publishes and not out and not others and self._pipe is not None:
            self._pipe.rest_in_flood(len(publishes), len(chunk))
        return used

    def _on_packet(self, packet: Packet, out: Out) -> None:
        """Take one packet that is no PUBLISH.

        Raises:
            LinkError: When the connection must end.
        """
        match packet:
            case ConnAckPacket():
                self._on_connack(packet)
            case PingRespPacket():
                pass
            case DisconnectPacket():
                raise dismissal(packet)
            case _:
                self._on_session_packet(packet, out)

    def _on_session_packet(self, packet: Packet, out: Out) -> None:
        """Let the session take a packet, and report what came of it."""
        settled = self._session.subscriptions.settled
        newly_refused = self._session.on_packet(packet, out)
        for pattern, reason in newly_refused.items():
            self._log.warning(
                "connection.subscription_refused", filter=pattern, reason=f"0x{reason:02x}"
            )
        if self._session.window.first_rejection is not None and not self._rejection_logged:
            self._rejection_logged = True
            self._log.warning(
                "connection.publication_rejected", reason=self._session.window.first_rejection
            )
        if not settled and self._session.subscriptions.settled:
            self._handler.on_subscribed(self)

    def _on_connack(self, ack: ConnAckPacket) -> None:
        if self._up or self._connection is None:
            raise LinkError("a second CONNACK")
        if ack.reason_code != ConnAckReasonCode.SUCCESS:
            self.refused_with = ack.reason_code
            raise LinkError(refusal(ack))
        out: Out = []
        self.limits = self._session.resume(ack, out)
        self._up = True
        self.last_error = self._logged_error = self.refused_with = None
        self.taken_over = False
        self._counters.connects += 1
        self._log.info("connection.up", session_present=ack.session_present)
        self._send(out)
        self._connection.on_accepted(ack)
        self._handler.on_up(self, ack.session_present)
        if self._session.subscriptions.settled:
            self._handler.on_subscribed(self)

    # Life cycle

    async def run(self) -> None:
        """Stay connected until cancelled or closed; then DISCONNECT, so without the Will.

        Raises:
            Exception: What the handler raised.
        """
        self._stopping.clear()
        while not self._stopping.is_set():
            self._backoff.connection_lasted(await self._connect_once())
            delay_s = self._backoff.next_delay_ms() / 1000
            if self.taken_over:
                delay_s = self._taken_over_pause_s
            self._resume_at_s = time.monotonic() + delay_s
            while not self._stopping.is_set() and time.monotonic() < self._resume_at_s:
                self._due_s = self._resume_at_s
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._resume_at_s - time.monotonic()):
                        await self._stopping.wait()
        self._due_s = math.inf

    def give_way(self) -> None:
        """Behave as if the session had been taken over: its owner learnt that elsewhere."""
        self.taken_over = True
        self._resume_at_s = time.monotonic() + self._taken_over_pause_s
        if self._pipe is not None:
            self._pipe.abort(TakenOverError("another client has our place"))

    def drop(self, reason: str) -> None:
        """Break the connection, if there is one; ``run`` makes another."""
        if self._pipe is not None:
            self._pipe.abort(LinkError(reason))

    async def close(self, *, with_will: bool = False) -> None:
        """Leave and make ``run`` return; ``with_will`` has the broker publish the Will."""
        self._stopping.set()
        if self._connection is not None:
            await self._connection.leave(with_will=with_will)

    async def _connect_once(self) -> float:
        """Open a connection and serve it to its end; return how long it was up, in ms."""
        loop = asyncio.get_running_loop()
        pipe = self._pipe = PacketTransport(
            self._on_read,
            packet_bytes_max=self._packet_bytes_max,
            queue_bytes_max=self._send_queue_bytes_max,
        )
        connection = self._connection = Connection(
            pipe,
            self._introduction,
            open_timeout_s=self._connect_timeout_s,
            promise=self._promise,
        )
        self._counters.attempts += 1
        up_since_s = loop.time()
        try:
            await connection.open(self.endpoint)
            up_since_s = loop.time()
            await connection.keep_alive()
        except asyncio.CancelledError:
            self._stopping.set()
            await connection.leave(with_will=False)
            raise
        except _EXPECTED as error:
            pipe.abort(error)
        finally:
            pipe.abort()
            up = self._up
            self._on_lost(pipe)
        if pipe.reason is not None and not isinstance(
            pipe.reason, OSError | UnicodeError | LinkError
        ):
            raise pipe.reason
        return (loop.time() - up_since_s) * 1000 if up else 0.0

    def _promise(self, within_s: float) -> None:
        self._due_s = time.monotonic() + within_s

    def _on_lost(self, pipe: PacketTransport) -> None:
        """Note why the connection ended, once; keep what must be sent again."""
        self._pipe = self._connection = None
        self._counters.bytes_in += pipe.bytes_in
        self._counters.bytes_out += pipe.bytes_out
        self._counters.publishes_dropped += pipe.discard()
        self._session.suspend()
        self.taken_over = isinstance(pipe.reason, TakenOverError)
        closed = pipe.reason is None or isinstance(pipe.reason, ConnectionError)
        self.closed_by_broker = closed and not self._stopping.is_set()
        was_up, self._up = self._up, False
        if self._stopping.is_set():
            reason = "closed by us"
        else:
            reason = self.last_error = explain(pipe.reason, host=self.endpoint.host)
        if was_up:
            quiet = self._stopping.is_set() or self.taken_over  # the owner says it better
            level = logging.INFO if quiet else logging.WARNING
            self._log.log(level, "connection.down", reason=reason)
            self._handler.on_down(self, reason)
        elif not self._stopping.is_set() and reason != self._logged_error:
            self._logged_error = reason
            self._log.warning("connection.refused", reason=reason)
