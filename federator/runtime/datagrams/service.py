"""Links over datagrams at work: one socket, sealed datagrams, a timer, and offers by the broker.

Two agents use datagrams when each has announced its address to the other, on the control topics.
The offers are repeated every few seconds, and report what the sender's links lose. This module
carries out what the link machines decide; frames they give back go by the broker.

A datagram is verified before anything of it is stored: the seal of a neighbour after a handshake,
and a fresh number. So a flood of others costs the time to verify them and no memory.

Source: docs/udp-fec.md.
"""

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog

from federator.config.brokers import Address
from federator.config.settings import Settings
from federator.config.transports import announced_endpoint, split_endpoint
from federator.errors import DecodeError
from federator.protocol.data.by_broker import ByBroker
from federator.protocol.datagrams.link import DatagramLink
from federator.protocol.datagrams.protection import Coder
from federator.protocol.datagrams.sender import Outcome
from federator.protocol.messages.control import LOSSES_MAX, DatagramOffer, LinkLoss
from federator.protocol.rate_limiter import RateLimiter
from federator.protocol.trust.guard import DATAGRAM
from federator.protocol.types import BrokerId, Epoch, Millis
from federator.runtime.process.clocks import DeadlineTimer, monotonic_ms, wall_clock_ms
from federator.runtime.process.listening import bound
from federator.runtime.trust.guarding import Trust

OFFER_S: Final = 5.0
RECEIVE_BUFFER_BYTES: Final = 1_048_576
DATAGRAM_BYTES_MAX: Final = 2_048
READS_MAX: Final = 64
"""Datagrams handled in one turn of the event loop."""

COMPLAINT_GAP_MS: Final = Millis(600_000)
COMPLAINTS_MAX: Final = 256

KIND: Final = "datagram"

_log = structlog.get_logger()


@dataclass(slots=True)
class DatagramCounters:
    """Counters since the start."""

    datagrams_out: int = 0
    bytes_out: int = 0  # with their seals
    datagrams_in: int = 0  # the seal was valid and fresh
    bytes_in: int = 0
    refused: int = 0
    unsent: int = 0  # lost here: the kernel accepted no more, or there was no key
    by_broker: int = 0  # frames that were tried in datagrams and then went by the broker


@dataclass(slots=True)
class _Peer:
    """A neighbour with which we have a link."""

    bytes_out: int = 0
    epoch: Epoch | None = None
    offered: str = ""  # its announced address for datagrams; empty without one
    address: tuple[str, int] | None = None
    link: DatagramLink | None = None  # if both ends use datagrams
    losses: tuple[LinkLoss, ...] = ()  # the neighbour's report of losses on links to it
    was_usable: bool = False  # whether the link was usable when that was logged last


@dataclass(kw_only=True, eq=False, repr=False)
class DatagramService:
    """All links over datagrams of one agent: a ``Transport``.

    Raises:
        ConfigError: The port is not available.

    Args:
        tell: Sends a control message to a neighbour, if there is a way.
        on_frames: Handles a neighbour's frames.
        by_broker: Sends by the brokers what datagrams did not deliver.
    """

    name, section = "udp-fec", "datagrams"

    settings: Settings
    trust: Trust
    tasks: asyncio.TaskGroup
    coder: Coder
    epoch: Callable[[], Epoch]
    tell: Callable[[BrokerId, DatagramOffer], None]
    on_frames: Callable[[Sequence[bytes], BrokerId], None]
    by_broker: ByBroker

    def __post_init__(self) -> None:
        self.counters = DatagramCounters()
        self._limits = self.settings.udp.limits()
        self._peers: dict[BrokerId, _Peer] = {}
        self._stream = 0
        self._complaints: RateLimiter[BrokerId] = RateLimiter(
            gap_ms=COMPLAINT_GAP_MS, keys_max=COMPLAINTS_MAX
        )
        self._timer = DeadlineTimer(self._on_timer)
        self._socket = _bound(self.settings.udp.listen)
        self.port: int = self._socket.getsockname()[1]
        self.advertised = announced_endpoint(  # the address for neighbours
            self.settings.udp.listen,
            self.settings.udp.advertise,
            host_of_broker=Address.parse(self.settings.broker.advertised).host,
            port=self.port,
        )

    async def run(self) -> None:
        """Receive datagrams, and repeat our offer, until cancelled."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._socket, self._on_readable)
        _log.info("datagrams.listening", address=self.advertised)
        try:
            while True:
                for neighbour in list(self._peers):
                    self._offer(neighbour)
                await asyncio.sleep(OFFER_S)
        finally:
            loop.remove_reader(self._socket)
            self._socket.close()
            self._timer.set(None)

    # -- neighbours -------------------------------------------------------------------------------

    def on_neighbour(self, neighbour: BrokerId, up: bool) -> None:
        """Use datagrams to a neighbour only while the link by the brokers is up."""
        if up:
            self._peers.setdefault(neighbour, _Peer())
            self._offer(neighbour)
            return
        peer = self._peers.pop(neighbour, None)
        if peer is not None:
            self._give_up(neighbour, peer)

    def on_offer(self, offer: DatagramOffer) -> None:
        """Accept a neighbour's offer with its address for datagrams."""
        peer = self._peers.get(offer.sender)
        if peer is None:
            return
        peer.losses = offer.losses
        if (offer.epoch, offer.address) == (peer.epoch, peer.offered):
            return
        self._offer(offer.sender)  # the link may have come up here earlier than there
        self._give_up(offer.sender, peer)
        peer.epoch, peer.offered, peer.address, peer.link = offer.epoch, offer.address, None, None
        try:
            host, port = split_endpoint(offer.address)
        except ValueError:
            self._log_bad_address(offer.sender, offer.address, "not host:port")
            return
        look_up = self._look_up(offer.sender, peer, host, port)
        self.tasks.create_task(look_up, name="address for datagrams")

    async def _look_up(self, neighbour: BrokerId, peer: _Peer, host: str, port: int) -> None:
        offered = peer.offered
        loop = asyncio.get_running_loop()
        family = self._socket.family
        try:
            addresses = await loop.getaddrinfo(host, port, family=family, type=socket.SOCK_DGRAM)
        except (OSError, UnicodeError) as error:  # UnicodeError: an impossible host name
            self._log_bad_address(neighbour, offered, str(error))
            peer.epoch = None  # the next offer tries again
            return
        if peer.offered != offered or peer.link is not None or not addresses:
            return
        now_ms = monotonic_ms()
        self._stream = max(self._stream + 1_000, wall_clock_ms() // 1_000 % 2**31)
        peer.address = addresses[0][4][:2]  # type: ignore[assignment]  # of IP families
        peer.link = DatagramLink(self._limits, self.coder, stream=self._stream, now_ms=now_ms)
        self._timer.set_sooner(peer.link.next_deadline_ms())

    def _log_bad_address(self, neighbour: BrokerId, address: str, reason: str) -> None:
        if self._complaints.allow(neighbour, monotonic_ms()):
            _log.warning(
                "datagrams.bad_address", neighbour=neighbour, address=address, reason=reason
            )

    def _offer(self, neighbour: BrokerId) -> None:
        losses = [
            LinkLoss(id_, round(min(1.0, meter.plr) * 1_000_000), round(min(600, meter.abl) * 100))
            for id_, peer in sorted(self._peers.items())
            if peer.link is not None
            for meter in (peer.link.receiver.meter,)
        ]
        reported = tuple(losses[:LOSSES_MAX])
        offer = DatagramOffer(self.settings.broker_id, self.epoch(), self.advertised, reported)
        self.tell(neighbour, offer)

    def leave(self) -> None:
        """Resend frames in flight by the brokers: we cannot repair them once we are gone."""
        for neighbour, peer in self._peers.items():
            self._give_up(neighbour, peer)

    def _give_up(self, neighbour: BrokerId, peer: _Peer) -> None:
        if peer.link is not None:
            self._by_broker(neighbour, peer.link.give_up())

    # -- frames -----------------------------------------------------------------------------------

    def send(
        self,
        neighbour: BrokerId,
        content: Sequence[bytes | memoryview],
        size: int,
        *,
        urgent: bool,
    ) -> int | None:
        """As ``Transport.send``; what is urgent goes by the broker."""
        peer = self._peers.get(neighbour)
        if urgent or peer is None or peer.link is None or not peer.link.usable:
            return None
        datagrams = peer.link.offer(b"".join(content), now_ms=monotonic_ms())
        if datagrams is None:
            return None
        self._send(neighbour, peer, datagrams)
        self._timer.set_sooner(peer.link.next_deadline_ms())
        return size

    def _send(self, neighbour: BrokerId, peer: _Peer, datagrams: Sequence[bytes]) -> None:
        if peer.address is None:
            return
        for datagram in datagrams:
            sealed = self.trust.guard.seal(DATAGRAM, KIND, datagram, neighbour)
            try:
                sent = sealed is not None and self._socket.sendto(sealed, peer.address)
            except OSError:  # no room in the kernel, or no way: as if the network had lost it
                sent = 0
            if sent:
                self.counters.datagrams_out += 1
                self.counters.bytes_out += sent
                peer.bytes_out += sent
            else:
                self.counters.unsent += 1

    def _by_broker(self, neighbour: BrokerId, frames: Sequence[bytes]) -> None:
        for frame in frames:
            self.counters.by_broker += 1
            self.by_broker.resend(neighbour, frame)

    # -- the socket -------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        """Handle received datagrams, with turns for other tasks."""
        for _ in range(READS_MAX):
            try:
                data = self._socket.recv(DATAGRAM_BYTES_MAX)
            except OSError:  # nothing more; or an ICMP message, which silence shows, too
                return
            self._on_datagram(data)

    def _on_datagram(self, data: bytes) -> None:
        """Verify a datagram, and pass it to its link."""
        try:
            neighbour, datagram = self.trust.guard.unseal(DATAGRAM, KIND, data)
        except DecodeError:
            self.counters.refused += 1
            return
        peer = self._peers.get(neighbour)
        if peer is None or peer.link is None:
            self.counters.refused += 1
            return
        self.counters.datagrams_in += 1
        self.counters.bytes_in += len(data)
        self._carry_out(neighbour, peer, peer.link.on_datagram(datagram, now_ms=monotonic_ms()))
        self._timer.set_sooner(peer.link.next_deadline_ms())

    def _carry_out(self, neighbour: BrokerId, peer: _Peer, outcome: Outcome) -> None:
        if outcome.datagrams:
            self._send(neighbour, peer, outcome.datagrams)
        if outcome.given_back:
            self._by_broker(neighbour, outcome.given_back)
        if outcome.frames:
            self.on_frames(outcome.frames, neighbour)
        link = peer.link
        if link is not None and link.usable != peer.was_usable:
            peer.was_usable = link.usable
            lost_ppm = round(link.sender.plr * 1_000_000)
            if link.usable:
                _log.info("datagrams.used", neighbour=neighbour, lost_ppm=lost_ppm)
            else:
                _log.info("datagrams.left", neighbour=neighbour, lost_ppm=lost_ppm)

    # -- time -------------------------------------------------------------------------------------

    def _on_timer(self) -> None:
        now_ms = monotonic_ms()
        for neighbour, peer in list(self._peers.items()):
            link = peer.link
            if link is not None and link.next_deadline_ms() <= now_ms:
                self._carry_out(neighbour, peer, link.on_deadline(now_ms=now_ms))
        times = [link.next_deadline_ms() for link in self.links().values()]
        if times:
            self._timer.set_sooner(min(times))

    # -- reports ----------------------------------------------------------------------------------

    @property
    def messages(self) -> Mapping[type, Callable[[Any], None]]:
        return {DatagramOffer: self.on_offer}

    def carries(self, neighbour: BrokerId) -> bool:
        return neighbour in self.links()

    def queue_to(self, neighbour: BrokerId) -> None:
        """Nothing waits here: what has no room goes by the broker."""

    def totals(self) -> dict[str, object]:
        """For ``/status``: the socket."""
        counters = {name: getattr(self.counters, name) for name in self.counters.__slots__}
        return {"port": self.port, "advertised": self.advertised, **counters}

    def links(self) -> dict[BrokerId, DatagramLink]:
        """The existing links over datagrams."""
        return {id_: peer.link for id_, peer in self._peers.items() if peer.link is not None}

    def bytes_to(self, neighbour: BrokerId) -> int:
        """Bytes of datagrams sent to one neighbour, with their seals."""
        peer = self._peers.get(neighbour)
        return 0 if peer is None else peer.bytes_out

    def snapshot(self, neighbour: BrokerId | None) -> dict[str, object] | None:
        """For ``/status``: the link to one neighbour."""
        peer = self._peers.get(neighbour) if neighbour is not None else None
        if peer is None or peer.link is None:
            return None
        link = peer.link
        sender, receiver = link.sender.counters, link.receiver.counters
        return {
            "used": link.usable,
            "address": peer.offered,
            "rtt_ms": link.sender.round_trip_ms,
            "lost_ppm_out": round(link.sender.plr * 1_000_000),
            "burst_out": round(link.sender.abl, 2),
            "lost_ppm_in": round(link.receiver.meter.plr * 1_000_000),
            "burst_in": round(link.receiver.meter.abl, 2),
            "losses_there": [tuple(loss) for loss in peer.losses],
            "malformed": link.malformed,
            "out": {name: getattr(sender, name) for name in sender.__slots__},
            "in": {name: getattr(receiver, name) for name in receiver.__slots__},
        }


def _bound(listen: str) -> socket.socket:
    made = bound(listen, socket.SOCK_DGRAM, key="udp.listen")
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    return made
