"""Direct links between agents at work: our port, and a connection to each neighbour's port.

Two agents use such links when each has announced its address and a token to the other, on the
control topics. Each direction is a connection of its own, made by the sending agent; while it
stands, frames go over it, and when it breaks, by the neighbour's broker at once.

With keys everything that counts is sealed for its position on the connection: frames,
confirmations, and first a packet each way. Frames go directly only after the neighbour's sealed
answer. Unsealed packets (CONNECT, CONNACK, pings, the ends of connections) can cost the connection
and nothing else.

Source: docs/direct.md.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import structlog

from federator.config.brokers import Address
from federator.config.settings import Settings
from federator.config.transports import announced_endpoint, split_endpoint
from federator.errors import DecodeError
from federator.protocol.data.by_broker import ByBroker
from federator.protocol.direct.unconfirmed import SILENCE_MS, Unconfirmed
from federator.protocol.forwarding.publications import publish_pieces, topic_field
from federator.protocol.messages.control import TOKEN_BYTES, DirectOffer
from federator.protocol.rate_limiter import RateLimiter
from federator.protocol.trust.sealed_connection import (
    DRAWN_BYTES,
    SealedConnection,
    greet,
    welcomed,
)
from federator.protocol.types import BrokerId, Epoch, Millis
from federator.runtime.direct.endpoint import DirectEndpoint
from federator.runtime.direct.port import DirectPort
from federator.runtime.direct.wire import (
    CONFIRM_TOPIC,
    CONFIRMATION,
    DIRECT_TOPIC,
    URGENT_TOPIC,
)
from federator.runtime.mqtt.link import Inbound, LinkObserver, MqttLink
from federator.runtime.process.clocks import monotonic_ms
from federator.runtime.trust.guarding import Trust

OFFER_S: Final = 5.0
LOOK_S: Final = 0.5
KEEP_ALIVE_MAX_S: Final = 10
DIAL_GAP_MS: Final = 1_000
"""Between two offers of one neighbour that we accept: each ends a connection and begins one."""

REST_MS: Final = 5_000
"""Before a connection that went silent is retried."""

FRAME_BYTES_MAX: Final = 15 * 1024 * 1024
"""Longer frames go through the broker, which announces its limit."""

COMPLAINT_GAP_MS: Final = Millis(600_000)
COMPLAINTS_MAX: Final = 256

_DIRECT_FIELD, _URGENT_FIELD = topic_field(DIRECT_TOPIC), topic_field(URGENT_TOPIC)

_log = structlog.get_logger()


@dataclass(slots=True)
class _Peer:
    """A neighbour that we are linked with."""

    token: bytes  # which the neighbour sends when it connects to us
    offer: DirectOffer | None = None
    link: MqttLink | None = None
    task: asyncio.Task[None] | None = None
    dials_from_ms: Millis = Millis(0)  # no new connection before that
    drawn: bytes | None = None  # the nonce of our sealed greeting, until that is answered
    sent: Unconfirmed | None = None  # set while frames go directly
    confirmed: int = 0  # at the last check that found it grown
    waits_since_ms: Millis = Millis(0)


@dataclass(slots=True)
class DirectCounters:
    """Counters since the start."""

    frames_in: int = 0
    bytes_out: int = 0
    by_broker: int = 0  # frames sent directly, not confirmed, and resent by the broker
    refused: int = 0  # callers


@dataclass(kw_only=True, eq=False, repr=False)
class DirectLinks:
    """All direct links of one agent to neighbours' agents: a ``Transport``.

    Raises:
        ConfigError: The port, or the folder for sockets, is not available.

    Args:
        trust: Seals messages; ``None`` in an open federation.
        tell: Sends a control message to a neighbour, if there is a way.
        on_frames: Handles a neighbour's frames.
        by_broker: Sends by the brokers what was not confirmed.
    """

    name = section = "direct"

    settings: Settings
    trust: Trust | None
    tasks: asyncio.TaskGroup
    epoch: Callable[[], Epoch]
    tell: Callable[[BrokerId, DirectOffer], None]
    on_frames: Callable[[Sequence[bytes], BrokerId], None]
    by_broker: ByBroker

    def __post_init__(self) -> None:
        self._peers: dict[BrokerId, _Peer] = {}
        self._counters = DirectCounters()
        self._complaints: RateLimiter[BrokerId] = RateLimiter(
            gap_ms=COMPLAINT_GAP_MS, keys_max=COMPLAINTS_MAX
        )
        direct = self.settings.direct
        self._folder = None if direct.folder is None else Path(direct.folder)
        self._port = DirectPort(
            direct.listen,
            self._socket_of(self.settings.broker_id),
            self.on_frames,
            None if self.trust is None else self.trust.guard,
            self._refuse,
        )
        self.advertised = announced_endpoint(  # the address for neighbours
            direct.listen,
            direct.advertise,
            host_of_broker=Address.parse(self.settings.broker.advertised).host,
            port=self._port.port,
        )

    def _socket_of(self, broker: BrokerId) -> Path | None:
        """The Unix socket of an agent on this host, if it has our folder."""
        if self._folder is None:
            return None
        return self._folder / f"{self.settings.federation[:16]}-{broker}.sock"

    async def run(self) -> None:
        """Accept neighbours, send them offers, and supervise connections, until cancelled."""
        await self._port.open()
        _log.info("direct.listening", address=self.advertised)
        try:
            looks = 0
            while True:
                if looks % round(OFFER_S / LOOK_S) == 0:
                    for neighbour in list(self._peers):
                        if not self._port.is_called_by(neighbour):
                            self._offer(neighbour)
                looks += 1
                self._look()
                await asyncio.sleep(LOOK_S)
        finally:
            self._port.close()

    # -- neighbours -------------------------------------------------------------------------------

    def on_neighbour(self, neighbour: BrokerId, up: bool) -> None:
        """Use a direct link to a neighbour only while the link by the brokers is up."""
        if up:
            if neighbour not in self._peers:
                token = secrets.token_bytes(TOKEN_BYTES)
                self._peers[neighbour] = _Peer(token)
                self._port.expect(neighbour, token)
            self._offer(neighbour)
            return
        peer = self._peers.pop(neighbour, None)
        if peer is not None:
            self._port.forget(neighbour)
            self._hang_up(neighbour, peer)

    def on_offer(self, offer: DirectOffer) -> None:
        """Accept a neighbour's offer of a direct connection."""
        peer, now_ms = self._peers.get(offer.sender), monotonic_ms()
        if peer is None or offer == peer.offer or now_ms < peer.dials_from_ms:
            return  # it is repeated
        peer.dials_from_ms = Millis(now_ms + DIAL_GAP_MS)
        if not self._port.is_called_by(offer.sender):
            self._offer(offer.sender)  # the link may have come up here earlier than there
        self._hang_up(offer.sender, peer)
        peer.offer = offer
        self._dial(offer.sender, peer, offer)

    def _dial(self, neighbour: BrokerId, peer: _Peer, offer: DirectOffer) -> None:
        if self.trust is not None and not offer.places:
            return  # an older agent confirms without a seal, so its frames go by its broker
        try:
            host, port = split_endpoint(offer.address)
        except ValueError:
            if self._complaints.allow(neighbour, monotonic_ms()):
                _log.warning(
                    "direct.bad_address",
                    neighbour=neighbour,
                    address=offer.address,
                    reason="not host:port",
                )
            return
        links = self.settings.links
        endpoint = DirectEndpoint(
            host, port, password=offer.token, nearby=self._socket_of(neighbour)
        )
        soon_s = max(2, round(2 * links.hello_timeout_ms / 1000))
        peer.link = MqttLink(
            endpoint,
            _Observer(self, neighbour, peer),
            client_id=str(self.settings.broker_id),
            keep_alive_s=min(KEEP_ALIVE_MAX_S, soon_s),
            reconnect_min_ms=links.reconnect_min_ms,
            reconnect_max_ms=links.reconnect_max_ms,
            # Never refuses for want of room: unconfirmed frames are bounded.
            send_queue_bytes_max=2 * links.send_queue_bytes_max,
        )
        peer.task = self.tasks.create_task(peer.link.run(), name=f"direct link to {neighbour}")

    def _hang_up(self, neighbour: BrokerId, peer: _Peer, reason: str = "given up") -> None:
        """End the connection to a neighbour; its frames go by the broker, if that is reached."""
        self._go_by_broker(neighbour, peer, reason)
        if peer.link is not None:
            self._counters.bytes_out += peer.link.counters.bytes_out
        if peer.task is not None:
            peer.task.cancel()
        peer.link = peer.task = peer.offer = peer.drawn = None

    def _offer(self, neighbour: BrokerId) -> None:
        token = self._peers[neighbour].token
        offer = DirectOffer(
            self.settings.broker_id,
            self.epoch(),
            self.advertised,
            token,
            places=self.trust is not None,
        )
        self.tell(neighbour, offer)

    def leave(self) -> None:
        """Resend unconfirmed frames by the brokers: we cannot do so once we are gone."""
        peers, self._peers = self._peers, {}
        for neighbour, peer in peers.items():
            self._hang_up(neighbour, peer)

    # -- frames -----------------------------------------------------------------------------------

    def send(
        self,
        neighbour: BrokerId,
        content: Sequence[bytes | memoryview],
        size: int,
        *,
        urgent: bool,
    ) -> int | None:
        """As ``Transport.send``: 0 while the neighbour confirms too little."""
        peer = self._peers.get(neighbour)
        if peer is None or peer.sent is None or peer.link is None or size > FRAME_BYTES_MAX:
            return None
        sent, whole = peer.sent, b"".join(content)
        if not sent.has_room:
            return 0
        sealed: bytes | None = whole
        if sent.line is not None:
            sealed = sent.line.seal(URGENT_TOPIC if urgent else DIRECT_TOPIC, whole)
        if sealed is None:
            return None
        field = _URGENT_FIELD if urgent else _DIRECT_FIELD
        packet = publish_pieces(field, (sealed,), len(sealed))
        if not peer.link.write_packets(packet, 1, urgent=urgent):
            # It refuses nothing unless it is broken, which is reported later in this turn.
            self._go_by_broker(neighbour, peer, "the connection broke")
            return None
        sent.add(whole, urgent=urgent)
        return len(sealed)

    def on_up(self, neighbour: BrokerId, peer: _Peer, link: MqttLink) -> None:
        """The port accepted us; with keys it must prove that it is the neighbour's agent."""
        if peer.link is not link or self._peers.get(neighbour) is not peer:
            return
        if self.trust is None:
            self._go_direct(neighbour, peer, link)
            return
        peer.drawn, peer.waits_since_ms = secrets.token_bytes(DRAWN_BYTES), monotonic_ms()
        greeting = greet(self.trust.guard, neighbour, peer.drawn)
        if greeting is not None:
            link.publish(CONFIRM_TOPIC, greeting)

    def _go_direct(
        self,
        neighbour: BrokerId,
        peer: _Peer,
        link: MqttLink,
        line: SealedConnection | None = None,
    ) -> None:
        """Send frames for ``neighbour`` directly from now on."""
        peer.sent = Unconfirmed(self.settings.links.send_queue_bytes_max, line)
        peer.confirmed, peer.waits_since_ms = 0, monotonic_ms()
        _log.info("direct.used", neighbour=neighbour, address=link.endpoint.place)

    def on_down(self, neighbour: BrokerId, peer: _Peer, link: MqttLink, reason: str) -> None:
        """The connection broke; ignore one that was given up before."""
        if peer.link is link and self._peers.get(neighbour) is peer:
            peer.drawn = None
            self._go_by_broker(neighbour, peer, reason)

    def _go_by_broker(self, neighbour: BrokerId, peer: _Peer, reason: str) -> None:
        if peer.sent is None:
            return
        frames, peer.sent = peer.sent.take_back(), None
        if self.by_broker.queue_to(neighbour) is None:
            frames = []  # there is no way: custody's are asked for again
        for frame in frames:
            self.by_broker.resend(neighbour, frame)
        again = len(frames)
        self._counters.by_broker += again
        _log.info("direct.left", neighbour=neighbour, reason=reason, again=again)

    def on_said(
        self, neighbour: BrokerId, peer: _Peer, link: MqttLink, said: Sequence[bytes]
    ) -> None:
        """Handle a neighbour's welcome, or its confirmation of frames on ``link``."""
        if peer.link is not link:
            return
        try:
            for packet in said:
                if peer.sent is not None:
                    _confirm(peer.sent, packet)
                elif self.trust is not None and peer.drawn is not None:
                    drawn, peer.drawn = peer.drawn, None
                    line = welcomed(self.trust.guard, neighbour, drawn, packet)
                    self._go_direct(neighbour, peer, link, line)
        except DecodeError as error:
            self._refuse(error)
            link.drop(str(error))

    def _refuse(self, error: DecodeError) -> None:
        """Count a packet without a seal for its position on a connection."""
        if self.trust is not None:
            self.trust.words.refuse("direct", error)

    def _look(self) -> None:
        """End connections without confirmations, and retry them later."""
        now_ms = monotonic_ms()
        for neighbour, peer in self._peers.items():
            sent, patience_ms = peer.sent, SILENCE_MS
            if peer.link is None:
                if peer.offer is not None and now_ms >= peer.dials_from_ms:
                    self._dial(neighbour, peer, peer.offer)
                continue
            if sent is not None:
                patience_ms = sent.patience_ms
                if not sent or sent.confirmed != peer.confirmed:
                    peer.confirmed, peer.waits_since_ms = sent.confirmed, now_ms
            elif peer.drawn is None:
                continue  # there is no connection
            if now_ms - peer.waits_since_ms > min(
                patience_ms, self.settings.links.hello_timeout_ms
            ):
                offer = peer.offer
                self._hang_up(neighbour, peer, "nothing is confirmed")
                peer.offer, peer.dials_from_ms = offer, Millis(now_ms + REST_MS)

    # -- reports ----------------------------------------------------------------------------------

    @property
    def messages(self) -> Mapping[type, Callable[[Any], None]]:
        return {DirectOffer: self.on_offer}

    def carries(self, neighbour: BrokerId) -> bool:
        return self.link_to(neighbour) is not None

    def link_to(self, neighbour: BrokerId) -> MqttLink | None:
        """The connection for direct frames to a neighbour; ``None`` while there is none."""
        peer = self._peers.get(neighbour)
        return None if peer is None or peer.sent is None else peer.link

    queue_to = link_to

    def bytes_to(self, neighbour: BrokerId) -> int:
        """Bytes that a neighbour's agent received from us over its present connections."""
        peer = self._peers.get(neighbour)
        return 0 if peer is None or peer.link is None else peer.link.bytes_arrived

    def counters(self) -> DirectCounters:
        """Counters since the start."""
        out = sum(p.link.counters.bytes_out for p in self._peers.values() if p.link is not None)
        return replace(
            self._counters,
            frames_in=self._port.frames,
            bytes_out=self._counters.bytes_out + out,
            refused=self._port.refused,
        )

    def totals(self) -> dict[str, object]:
        """For ``/status``: the port."""
        counters = self.counters()
        return {
            "port": self._port.port,
            "advertised": self.advertised,
            **{name: getattr(counters, name) for name in counters.__slots__},
        }

    def snapshot(self, neighbour: BrokerId | None) -> dict[str, object] | None:
        """For ``/status``: the link to one neighbour."""
        peer = self._peers.get(neighbour) if neighbour is not None else None
        if neighbour is None or peer is None:
            return None
        link = peer.link
        return {
            "used": peer.sent is not None,
            "address": None if link is None else link.endpoint.place,
            "last_error": None if link is None else link.last_error,
            "unconfirmed": 0 if peer.sent is None else len(peer.sent),
            "comes_to_us": self._port.is_called_by(neighbour),
        }


@dataclass(eq=False, repr=False)
class _Observer(LinkObserver):
    """Passes on the events of the connection to one neighbour's agent."""

    links: DirectLinks
    neighbour: BrokerId
    peer: _Peer

    def on_up(self, link: MqttLink, session_present: bool) -> None:
        self.links.on_up(self.neighbour, self.peer, link)

    def on_down(self, link: MqttLink, reason: str) -> None:
        self.links.on_down(self.neighbour, self.peer, link, reason)

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        """Pass on a welcome or a confirmation."""
        payloads = [bytes(packet.payload) for packet, _, _ in publishes]
        self.links.on_said(self.neighbour, self.peer, link, payloads)


def _confirm(sent: Unconfirmed, payload: bytes) -> None:
    """Apply a confirmation. Raises ``DecodeError``."""
    counts = payload if sent.line is None else sent.line.open(CONFIRM_TOPIC, payload)
    if len(counts) != CONFIRMATION.size:
        raise DecodeError(f"a confirmation of {len(counts)} bytes")
    sent.confirm(*CONFIRMATION.unpack(counts))
