"""A client that stays at one broker: connects, subscribes, publishes, reconnects for ever.

Nothing here waits for the broker: publications are accepted or refused at once, and received ones
are handed over a whole socket read at a time, from the socket's callback. ``run`` only makes one
connection after another; the work happens in callbacks.

Source: docs/ARCHITECTURE.md, "The link"; OASIS MQTT 5.0.
"""

import asyncio
import contextlib
import logging
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Protocol

import structlog
from mqtt5 import ConnAckPacket, ConnAckReasonCode, DisconnectPacket, Packet, PingRespPacket, Will

from federator.errors import LinkError
from federator.protocol.client_names import shown
from federator.protocol.rate_limiter import RateLimiter
from federator.protocol.types import Millis
from federator.runtime.mqtt import failures
from federator.runtime.mqtt.connection import Backoff, Introduction, MqttConnection
from federator.runtime.mqtt.endpoint import Endpoint
from federator.runtime.mqtt.sender import LinkCounters, PacketSender
from federator.runtime.mqtt.transport import RECEIVE_BUFFER_BYTES, PacketTransport
from federator.runtime.mqtt.window import QUOTA_EXCEEDED
from federator.runtime.mqtt.wire import Inbound, Out, TriedPacket, publish_topic, read_packets

PACKET_BYTES_MAX = 16 * 1024 * 1024
SEND_QUEUE_BYTES_MAX = 16 * 1024 * 1024
PACKETS_PER_TURN_MAX = 1_024
"""How many packets one turn of the loop takes of a read, however short: each may cost a search, a
frame and a record."""

CONNECT_TIMEOUT_S = 5.0
GIVE_WAY_S = 30.0
"""After this long, an agent that gave way to another checks whether the other is still there."""

REFUSAL_GAP_MS = Millis(600_000)
"""At least this long between two log lines on a topic on which the broker refuses publications."""
REFUSED_TOPICS_MAX = 256

__all__ = ["Endpoint", "Inbound", "LinkCounters", "LinkObserver", "MqttLink"]

_EXPECTED = (OSError, UnicodeError, LinkError)  # UnicodeError: an impossible host name

_log = structlog.get_logger()


class LinkObserver(Protocol):
    """Callbacks of a link, called synchronously from the socket's callback: be quick.

    An exception raised by any of them is a bug of ours and comes out of ``MqttLink.run``. A
    subclass overrides only what it needs.
    """

    def on_up(self, link: "MqttLink", session_present: bool) -> None:
        """Called when the broker accepted the connection; the SUBSCRIBEs have been sent."""
        return

    def on_subscribed(self, link: "MqttLink") -> None:
        """Called when all subscriptions were answered: after each connection and each change."""
        return

    def on_down(self, link: "MqttLink", reason: str) -> None:
        """Called when a connection that was up is lost."""
        return

    def on_publishes(self, link: "MqttLink", chunk: memoryview, publishes: list[Inbound]) -> None:
        """Called with the publications of a socket read, in order, each QoS 2 one once.

        Those of a read of very many packets come in several calls, in turns of the loop.

        ``chunk`` is reused as soon as this returns: copy what must stay.
        """
        return

    def share_of_turn(self, publishes: Sequence[Inbound]) -> int:
        """How many of these publications one turn of the loop takes, at least one."""
        return len(publishes)

    def has_spare_time(self) -> bool:
        """Whether processors have, so that no read waits for the next."""
        return False

    def on_refused(self, packet: bytes | bytearray) -> None:
        """Called with each publication that the broker refused, or would, for good."""
        return


class MqttLink(PacketSender):
    """One client id at one broker, connected again whenever the connection is lost.

    Args:
        client_id: Ours at that broker; logs and reports show its ``name``.
        clean_start: The first connection of ``run`` starts a new session. Later ones resume it when
            ``session_expiry_s`` is positive, and start a new one otherwise. A session to be resumed
            is wiped first, and begun without a clean start: see ``Introduction``.
        session_expiry_s: How long the broker keeps the session after a connection.
        keep_alive_s: A silent broker is given up after this long at the latest (half of it without
            a sign of life, after a PINGREQ).
        will: Published by the broker when we vanish; a callable is asked before each connection.
        reconnect_min_ms, reconnect_max_ms: For ``Backoff``.
        send_queue_bytes_max: Bound of each send queue, and of unacknowledged QoS 1 and 2 messages.
        packet_bytes_max: A longer packet from the broker closes the connection.
        connect_timeout_s: From the first SYN to CONNACK.
        acknowledge: Acknowledge publications once the observer returned. When false, the owner
            calls ``acknowledge`` for each QoS 1 and 2 publication.
        may_forget: A broker that closed a connection without DISCONNECT may have crashed and lost
            messages it had acknowledged: then send twice rather than never.
        read_bytes_max: How much one turn of the loop reads.

    Attributes:
        taken_over: The last connection ended because another client has our client id.
        closed_by_broker: The broker closed the last connection without DISCONNECT.
        gave_way: We left the client id to another agent, and are not back.
        observer: As given; see ``observe``.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        observer: LinkObserver,
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
        give_way_s: float = GIVE_WAY_S,
        acknowledge: bool = True,
        may_forget: bool = False,
        read_bytes_max: int = RECEIVE_BUFFER_BYTES,
    ) -> None:
        super().__init__(queue_bytes_max=send_queue_bytes_max, acknowledge=acknowledge)
        self.endpoint: Final = endpoint
        self.client_id = client_id
        self.name = shown(client_id)
        self.last_error: str | None = None
        self.taken_over = self.closed_by_broker = self.gave_way = False
        self.observer = observer
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
        self._may_forget, self._read_bytes_max = may_forget, read_bytes_max
        self._backoff = Backoff(
            min_ms=reconnect_min_ms, max_ms=reconnect_max_ms, rng=random.Random()
        )
        self._connect_timeout_s, self._give_way_s = connect_timeout_s, give_way_s
        self._resume_at_s = 0.0
        self._due_s = math.inf  # by when run() attends to the link again; inf while it does not run
        self._stop = asyncio.Event()
        self._connection: MqttConnection | None = None
        self._logged_error: str | None = None
        self._refusals: RateLimiter[tuple[str, int]] = RateLimiter(
            gap_ms=REFUSAL_GAP_MS, keys_max=REFUSED_TOPICS_MAX
        )
        self._log = _log.bind(client_id=self.name, broker=endpoint.place)

    def observe(self, observer: LinkObserver) -> None:
        """Replace the observer, before ``run`` begins."""
        self.observer = observer

    # State

    @property
    def overdue_s(self) -> float:
        """How much later than planned ``run`` attends to the link.

        0 while the link is attended to, even without its broker: then ``run`` tries again, or waits
        for a time of its own choice.
        """
        return max(0.0, time.monotonic() - self._due_s)

    @property
    def behind(self) -> bool:
        """Whether packets from the broker may wait for us to read them, see ``read_bytes_max``."""
        return self._pipe is not None and self._pipe.behind

    @property
    def peer(self) -> str:
        """The IP address at the other end; empty without a connection."""
        return self._pipe.peer if self._pipe is not None else ""

    @property
    def counters(self) -> LinkCounters:
        """A copy of the counters, up to date."""
        pipe = self._pipe
        return replace(
            self._counters,
            bytes_in=self._counters.bytes_in + (pipe.bytes_in if pipe else 0),
            bytes_out=self._counters.bytes_out + (pipe.bytes_out if pipe else 0),
        )

    # Receiving

    def _on_read(self, chunk: memoryview) -> int:
        """Handle the whole packets in ``chunk`` that a turn takes; return where the rest begins."""
        if not self._up:
            failures.check_greeting(chunk)
        publishes: list[Inbound] = []
        others: list[Packet] = []
        acknowledged: list[int] = []
        too_large: list[tuple[int, int]] = []
        out: Out = []
        used = 0
        failure: LinkError | None = None
        try:
            used = read_packets(
                chunk,
                publishes,
                others,
                acknowledged=acknowledged,
                too_large=too_large,
                packets_max=PACKETS_PER_TURN_MAX,
            )
        except LinkError as error:
            failure = error
        more = len(publishes) + len(others) + len(acknowledged) == PACKETS_PER_TURN_MAX
        share = self.observer.share_of_turn(publishes) if len(publishes) > 1 else 1
        if share < len(publishes):  # take only a share, as if no more had arrived
            more, (_, _, used) = True, publishes[share - 1]
            publishes, others, acknowledged, too_large, failure = [], [], [], [], None
            read_packets(
                chunk[:used], publishes, others, acknowledged=acknowledged, too_large=too_large
            )
        if acknowledged and self._up:
            self._session.window.on_run_acknowledged(acknowledged, out)
        for qos, packet_id in too_large:
            self._session.window.on_too_large(packet_id, out, qos=qos)
        for packet in others:
            try:
                self._on_packet(packet, out)
            except LinkError as error:  # packets before this one still count
                failure = error
                break
        if out and publishes:  # what the window released goes before what the observer publishes
            self._send(out)
            out = []
        if publishes and self._up:
            admitted = self._session.admit(publishes, out)
            self._counters.publishes_in += len(admitted)
            if admitted:
                self.observer.on_publishes(self, chunk, admitted)
        if out:
            self._send(out)
        if self._too_long:
            self._log_too_long()
        if failure is not None:
            raise failure
        flows = bool(publishes) and not (more or out or others or acknowledged or too_large)
        if flows and self._pipe is not None and not self.observer.has_spare_time():
            self._pipe.rest_in_flood(len(publishes), len(chunk))
        return used

    def _on_packet(self, packet: Packet, out: Out) -> None:
        """Handle one packet other than PUBLISH. Raises a ``LinkError`` to end the connection."""
        match packet:
            case ConnAckPacket():
                self._on_connack(packet)
            case PingRespPacket():
                self._session.window.try_again(out)
            case DisconnectPacket():
                raise failures.dismissal(packet)
            case _:
                self._on_session_packet(packet, out)

    def _on_session_packet(self, packet: Packet, out: Out) -> None:
        """Let the session handle a packet; log refused filters and report settled subscriptions."""
        subscriptions = self._session.subscriptions
        settled = subscriptions.settled
        newly_refused = self._session.on_packet(packet, out)
        for pattern, reason in newly_refused.items():
            self._log.warning(
                "connection.subscription_refused", filter=pattern, reason=f"0x{reason:02x}"
            )
        if not settled and subscriptions.settled:
            self.observer.on_subscribed(self)

    def _refused(self, packet: bytes | bytearray, reason: int) -> None:
        super()._refused(packet, reason)
        tried_again = reason == QUOTA_EXCEEDED or isinstance(packet, TriedPacket)
        if not tried_again:
            self.observer.on_refused(packet)
        topic = publish_topic(packet)
        if self._refusals.allow((topic, reason), Millis(int(time.monotonic() * 1_000))):
            self._log.warning(
                "connection.publication_rejected",
                topic=topic,
                bytes=len(packet),
                reason=f"0x{reason:02x}",
                tried_again=tried_again,
                so_far=self._counters.publishes_rejected,
            )

    def _on_connack(self, ack: ConnAckPacket) -> None:
        if self._up or self._connection is None:
            raise LinkError("a second CONNACK")
        if ack.reason_code != ConnAckReasonCode.SUCCESS:
            raise LinkError(failures.refusal(ack))
        out: Out = []
        died = self._may_forget and self.closed_by_broker
        self.limits = self._session.resume(ack, out, died=died)
        self._up = True
        self.last_error = self._logged_error = None
        self.taken_over = self.gave_way = False
        self._counters.connects += 1
        self._log.info("connection.up", session_present=ack.session_present)
        self._send(out)
        self._connection.on_accepted(ack)
        self.observer.on_up(self, ack.session_present)
        if self._session.subscriptions.settled:
            self.observer.on_subscribed(self)

    # Life cycle

    async def run(self) -> None:
        """Stay connected until cancelled or closed; then DISCONNECT, so without the Will.

        Raises:
            Exception: What the observer raised.
        """
        self._stop.clear()
        while not self._stop.is_set():
            self._backoff.connection_lasted(await self._connect_once())
            delay_s = self._backoff.next_delay_ms() / 1000
            self._resume_at_s = max(self._resume_at_s, time.monotonic() + delay_s)
            # Checked again after the pause, which may have been extended meanwhile.
            while not self._stop.is_set() and time.monotonic() < self._resume_at_s:
                self._due_s = self._resume_at_s
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._resume_at_s - time.monotonic()):
                        await self._stop.wait()
        self._due_s = math.inf

    def give_way(self) -> None:
        """Leave the client id to another agent for a while, and give up our session.

        Later a new session begins: the other agent received what was queued for us.
        """
        self.gave_way = True
        self._introduction.forget_session()
        self._resume_at_s = time.monotonic() + self._give_way_s
        self.drop("another agent has our place")

    def drop(self, reason: str) -> None:
        """Break the connection, if there is one; ``run`` makes another."""
        if self._pipe is not None:
            self._pipe.abort(LinkError(reason))

    async def close(self, *, keep_session: bool = True) -> None:
        """Disconnect, so without the Will, and make ``run`` return."""
        self._stop.set()
        if self._connection is not None:
            await self._connection.leave(keep_session=keep_session)

    async def _connect_once(self) -> float:
        """Open a connection and serve it to its end; return how long it was up, in ms."""
        loop = asyncio.get_running_loop()
        pipe = self._pipe = PacketTransport(
            self._on_read,
            packet_bytes_max=self._introduction.packet_bytes_max,
            queue_bytes_max=self._queue_bytes_max,
            read_bytes_max=self._read_bytes_max,
        )
        connection = self._connection = MqttConnection(
            pipe, self._introduction, open_timeout_s=self._connect_timeout_s, promise=self._promise
        )
        self._counters.attempts += 1
        up_since_s = loop.time()
        try:
            await connection.open(self.endpoint)
            up_since_s = loop.time()
            await connection.keep_alive()
        except asyncio.CancelledError:
            self._stop.set()
            await connection.leave()
            raise
        except _EXPECTED as error:
            pipe.abort(error)
        finally:
            pipe.abort()
            self._connection = None
            was_up = self._on_lost(pipe)
        if pipe.reason is not None and not isinstance(pipe.reason, _EXPECTED):
            raise pipe.reason
        return (loop.time() - up_since_s) * 1000 if was_up else 0.0

    def _promise(self, within_s: float) -> None:
        self._due_s = time.monotonic() + within_s

    def _on_lost(self, pipe: PacketTransport) -> bool:
        """Log why the connection ended, once; keep what to resend. Return whether it was up."""
        self._pipe = None
        self._counters.bytes_in += pipe.bytes_in
        self._counters.bytes_out += pipe.bytes_out
        self._counters.publishes_dropped += pipe.discard()
        self._session.suspend()
        stopping = self._stop.is_set()
        closed = pipe.reason is None or isinstance(pipe.reason, ConnectionError)
        self._forget_sizes(hung_up=closed)
        self.closed_by_broker = closed and not stopping
        self.taken_over = isinstance(pipe.reason, failures.TakenOverError)
        was_up, self._up = self._up, False
        if stopping:
            reason = "closed by us"
        else:
            at = self.endpoint
            reason = failures.explain(pipe.reason, host=at.host)
            if not was_up:
                tls = at.tls is not None
                reason += failures.other_way(pipe.reason, tls=tls, port=at.port)
            self.last_error = reason
        if was_up:
            quiet = stopping or self.gave_way  # the owner logs the reason better
            level = logging.INFO if quiet else logging.WARNING
            self._log.log(level, "connection.down", reason=reason)
            self.observer.on_down(self, reason)
        elif not stopping and reason != self._logged_error:
            self._logged_error = reason
            self._log.warning("connection.refused", reason=reason)
        return was_up
