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
from dataclasses import asdict, dataclass, replace
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
        self.peers: dict[BrokerId, DirectPeer] = {}
        self.counted = DirectCounters()  # besides what the port and present connections count
        self.complaints: RateLimiter[BrokerId] = RateLimiter(
            gap_ms=COMPLAINT_GAP_MS, keys_max=COMPLAINTS_MAX
        )
        direct = self.settings.direct
        self._folder = None if direct.folder is None else Path(direct.folder)
        self.port = DirectPort(
            direct.listen,
            self.socket_of(self.settings.broker_id),
            self.on_frames,
            None if self.trust is None else self.trust.guard,
            self.refuse,
        )
        self.advertised = announced_endpoint(  # the address for neighbours
            direct.listen,
            direct.advertise,
            host_of_broker=Address.parse(self.settings.broker.advertised).host,
            port=self.port.port,
        )

    def socket_of(self, broker: BrokerId) -> Path | None:
        """The Unix socket of an agent on this host, if it has our folder."""
        if self._folder is None:
            return None
        return self._folder / f"{self.settings.federation[:16]}-{broker}.sock"

    async def run(self) -> None:
        """Accept neighbours, send them offers, and supervise connections, until cancelled."""
        await self.port.open()
        _log.info("direct.listening", address=self.advertised)
        try:
            looks = 0
            while True:
                if looks % round(OFFER_S / LOOK_S) == 0:
                    for peer in list(self.peers.values()):
                        peer.offer()
                looks += 1
                for peer in self.peers.values():
                    peer.look()
                await asyncio.sleep(LOOK_S)
        finally:
            self.port.close()

    def on_neighbour(self, neighbour: BrokerId, up: bool) -> None:
        """Use a direct link to a neighbour only while the link by the brokers is up."""
        if up:
            if neighbour not in self.peers:
                self.peers[neighbour] = peer = DirectPeer(self, neighbour)
                self.port.expect(neighbour, peer.token)
            self.peers[neighbour].offer(again=True)
            return
        gone = self.peers.pop(neighbour, None)
        if gone is not None:
            self.port.forget(neighbour)
            gone.hang_up("given up")

    def on_offer(self, offer: DirectOffer) -> None:
        """Accept a neighbour's offer of a direct connection."""
        peer = self.peers.get(offer.sender)
        if peer is not None:
            peer.on_offer(offer)

    def leave(self) -> None:
        """Resend unconfirmed frames by the brokers: we cannot do so once we are gone."""
        peers, self.peers = self.peers, {}
        for peer in peers.values():
            peer.hang_up("given up")

    def send(
        self,
        neighbour: BrokerId,
        content: Sequence[bytes | memoryview],
        size: int,
        *,
        urgent: bool,
    ) -> int | None:
        """As ``Transport.send``: 0 while the neighbour confirms too little."""
        peer = self.peers.get(neighbour)
        if peer is None or size > FRAME_BYTES_MAX:
            return None
        return peer.send(b"".join(content), urgent=urgent)

    def refuse(self, error: DecodeError) -> None:
        """Count a packet without a seal for its position on a connection."""
        if self.trust is not None:
            self.trust.words.refuse("direct", error)

    # -- reports ----------------------------------------------------------------------------------

    @property
    def messages(self) -> Mapping[type, Callable[[Any], None]]:
        return {DirectOffer: self.on_offer}

    def carries(self, neighbour: BrokerId) -> bool:
        return self.queue_to(neighbour) is not None

    def queue_to(self, neighbour: BrokerId) -> MqttLink | None:
        """The connection for direct frames to a neighbour; ``None`` while there is none."""
        peer = self.peers.get(neighbour)
        return None if peer is None or peer.sent is None else peer.link

    def bytes_to(self, neighbour: BrokerId) -> int:
        """Bytes that a neighbour's agent received from us over its present connections."""
        peer = self.peers.get(neighbour)
        return 0 if peer is None or peer.link is None else peer.link.bytes_arrived

    def counters(self) -> DirectCounters:
        """Counters since the start."""
        out = sum(p.link.counters.bytes_out for p in self.peers.values() if p.link is not None)
        return replace(
            self.counted,
            frames_in=self.port.frames,
            bytes_out=self.counted.bytes_out + out,
            refused=self.port.refused,
        )

    def totals(self) -> dict[str, object]:
        """For ``/status``: the port."""
        return {"port": self.port.port, "advertised": self.advertised, **asdict(self.counters())}

    def snapshot(self, neighbour: BrokerId | None) -> dict[str, object] | None:
        """For ``/status``: the link to one neighbour."""
        peer = self.peers.get(neighbour) if neighbour is not None else None
        if neighbour is None or peer is None:
            return None
        link = peer.link
        return {
            "used": peer.sent is not None,
            "address": None if link is None else link.endpoint.place,
            "last_error": None if link is None else link.last_error,
            "unconfirmed": 0 if peer.sent is None else len(peer.sent),
            "comes_to_us": self.port.is_called_by(neighbour),
        }


class DirectPeer(LinkObserver):
    """Our connection to the agent of one neighbour, and what it has not confirmed."""

    def __init__(self, links: DirectLinks, neighbour: BrokerId) -> None:
        self._links, self._neighbour = links, neighbour
        self.token = secrets.token_bytes(TOKEN_BYTES)  # the neighbour sends it when it connects
        self.link: MqttLink | None = None
        self.sent: Unconfirmed | None = None  # set while frames go directly
        self._offered: DirectOffer | None = None
        self._task: asyncio.Task[None] | None = None
        self._dials_from_ms = Millis(0)  # no new connection before that
        self._drawn: bytes | None = None  # the nonce of our sealed greeting, until it is answered
        self._confirmed = 0  # at the last look that found it grown
        self._waits_since_ms = Millis(0)

    def offer(self, *, again: bool = False) -> None:
        """Offer our port, unless the neighbour's agent is connected to it; ``again``: even then."""
        links = self._links
        if again or not links.port.is_called_by(self._neighbour):
            signed = links.trust is not None
            us = links.settings.broker_id
            offer = DirectOffer(us, links.epoch(), links.advertised, self.token, places=signed)
            links.tell(self._neighbour, offer)

    def on_offer(self, offer: DirectOffer) -> None:
        """Connect to the port that the neighbour offers."""
        now_ms = monotonic_ms()
        if offer == self._offered or now_ms < self._dials_from_ms:
            return  # it is repeated
        self._dials_from_ms = Millis(now_ms + DIAL_GAP_MS)
        self.offer()  # the link may have come up here earlier than there
        self.hang_up("given up")
        self._offered = offer
        self._dial(offer)

    def _dial(self, offer: DirectOffer) -> None:
        parent = self._links
        if parent.trust is not None and not offer.places:
            return  # an older agent confirms without a seal, so its frames go by its broker
        try:
            host, port = split_endpoint(offer.address)
        except ValueError:
            if parent.complaints.allow(self._neighbour, monotonic_ms()):
                _log.warning(
                    "direct.bad_address",
                    neighbour=self._neighbour,
                    address=offer.address,
                    reason="not host:port",
                )
            return
        links = parent.settings.links
        nearby = parent.socket_of(self._neighbour)
        soon_s = max(2, round(2 * links.hello_timeout_ms / 1000))
        self.link = MqttLink(
            DirectEndpoint(host, port, password=offer.token, nearby=nearby),
            self,
            client_id=str(parent.settings.broker_id),
            keep_alive_s=min(KEEP_ALIVE_MAX_S, soon_s),
            reconnect_min_ms=links.reconnect_min_ms,
            reconnect_max_ms=links.reconnect_max_ms,
            # Never refuses for want of room: unconfirmed frames are bounded.
            send_queue_bytes_max=2 * links.send_queue_bytes_max,
        )
        name = f"direct link to {self._neighbour}"
        self._task = parent.tasks.create_task(self.link.run(), name=name)

    def hang_up(self, reason: str) -> None:
        """End the connection; frames go by the neighbour's broker, if that is reached."""
        self._go_by_broker(reason)
        if self.link is not None:
            self._links.counted.bytes_out += self.link.counters.bytes_out
        if self._task is not None:
            self._task.cancel()
        self.link = self._task = self._offered = self._drawn = None

    def look(self) -> None:
        """End a connection without confirmations, and retry it later."""
        now_ms, sent, patience_ms = monotonic_ms(), self.sent, SILENCE_MS
        if self.link is None:
            if self._offered is not None and now_ms >= self._dials_from_ms:
                self._dial(self._offered)
            return
        if sent is not None:
            patience_ms = sent.patience_ms
            if not sent or sent.confirmed != self._confirmed:
                self._confirmed, self._waits_since_ms = sent.confirmed, now_ms
        elif self._drawn is None:
            return  # there is no connection
        silent_ms = now_ms - self._waits_since_ms
        if silent_ms > min(patience_ms, self._links.settings.links.hello_timeout_ms):
            offer = self._offered
            self.hang_up("nothing is confirmed")
            self._offered, self._dials_from_ms = offer, Millis(now_ms + REST_MS)

    def send(self, frame: bytes, *, urgent: bool) -> int | None:
        """Send ``frame`` directly: the bytes that left, or as ``Carrier.send``."""
        sent = self.sent
        if sent is None or self.link is None:
            return None
        if not sent.has_room:
            return 0
        sealed: bytes | None = frame
        if sent.line is not None:
            sealed = sent.line.seal(URGENT_TOPIC if urgent else DIRECT_TOPIC, frame)
        if sealed is None:
            return None
        field = _URGENT_FIELD if urgent else _DIRECT_FIELD
        packet = publish_pieces(field, (sealed,), len(sealed))
        if not self.link.write_packets(packet, 1, urgent=urgent):
            # It refuses nothing unless it is broken, which is reported later in this turn.
            self._go_by_broker("the connection broke")
            return None
        sent.add(frame, urgent=urgent)
        return len(sealed)

    # What the connection reports; one that was given up before is ignored

    def on_up(self, link: MqttLink, session_present: bool) -> None:
        """The port accepted us; with keys it must prove that it is the neighbour's agent."""
        if self.link is not link:
            return
        trust = self._links.trust
        if trust is None:
            self._go_direct(link)
            return
        self._drawn, self._waits_since_ms = secrets.token_bytes(DRAWN_BYTES), monotonic_ms()
        greeting = greet(trust.guard, self._neighbour, self._drawn)
        if greeting is not None:
            link.publish(CONFIRM_TOPIC, greeting)

    def on_down(self, link: MqttLink, reason: str) -> None:
        """The connection broke."""
        if self.link is link:
            self._drawn = None
            self._go_by_broker(reason)

    def on_publishes(self, link: MqttLink, chunk: memoryview, publishes: list[Inbound]) -> None:
        """Handle the neighbour's welcome, or its confirmations of frames."""
        trust = self._links.trust
        if self.link is not link:
            return
        try:
            for publication, _, _ in publishes:
                packet = bytes(publication.payload)
                if self.sent is not None:
                    _confirm(self.sent, packet)
                elif trust is not None and self._drawn is not None:
                    drawn, self._drawn = self._drawn, None
                    self._go_direct(link, welcomed(trust.guard, self._neighbour, drawn, packet))
        except DecodeError as error:
            self._links.refuse(error)
            link.drop(str(error))

    def _go_direct(self, link: MqttLink, line: SealedConnection | None = None) -> None:
        """Send frames directly from now on."""
        self.sent = Unconfirmed(self._links.settings.links.send_queue_bytes_max, line)
        self._confirmed, self._waits_since_ms = 0, monotonic_ms()
        _log.info("direct.used", neighbour=self._neighbour, address=link.endpoint.place)

    def _go_by_broker(self, reason: str) -> None:
        if self.sent is None:
            return
        frames, self.sent = self.sent.take_back(), None
        if self._links.by_broker.queue_to(self._neighbour) is None:
            frames = []  # there is no way: custody's are asked for again
        for frame in frames:
            self._links.by_broker.resend(self._neighbour, frame)
        self._links.counted.by_broker += len(frames)
        _log.info("direct.left", neighbour=self._neighbour, reason=reason, again=len(frames))


def _confirm(sent: Unconfirmed, payload: bytes) -> None:
    """Apply a confirmation. Raises ``DecodeError``."""
    counts = payload if sent.line is None else sent.line.open(CONFIRM_TOPIC, payload)
    if len(counts) != CONFIRMATION.size:
        raise DecodeError(f"a confirmation of {len(counts)} bytes")
    sent.confirm(*CONFIRMATION.unpack(counts))
