"""Publications that a broker acknowledged and may lose, because its agent has no custody yet.

Marks ask the agent how far it took custody (``journal``). When the broker dies, publications that
no answered mark covers are published again: by their own client, on its next connection; or by the
gateway, on its own connection, for a client that is gone.

Source: docs/gateway.md, "What a PUBACK is worth".
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

import structlog

from federator.gateway.brokers import Broker
from federator.gateway.clients.proxied_client import GatewayContext, ProxiedClient
from federator.gateway.session.journal import Publication
from federator.gateway.session.orders import State
from federator.gateway.wire import only, publish_id
from federator.protocol.types import BrokerId
from federator.runtime.process.clocks import monotonic_ms

MARK_LOST_S: Final = 0.5
"""How long a mark may stay unanswered before another is sent."""

ORPHANS_S: Final = 1.0
"""How long, after the broker's death, publications of a missing client wait for that client."""

_log = structlog.get_logger()


class UnsafePublications:
    """Publications that only one broker is known to have, of the clients of one gateway."""

    def __init__(self, context: GatewayContext) -> None:
        self._context = context
        self._journal = context.journal
        self._counters = context.counters
        self._mark_s = context.settings.failover.custody_mark_ms / 1000
        self._orphans: dict[str, list[Publication]] = {}  # from dead brokers, by client
        self._marking: dict[BrokerId, asyncio.Handle] = {}

    def acknowledged(self, client: ProxiedClient, broker: BrokerId) -> None:
        """Keep what ``broker`` acknowledged to ``client``, and send a mark soon."""
        up = client.session.up
        for again, packets in enumerate((up.acknowledged, up.acknowledged_again)):
            if packets:
                self._journal.acknowledged(
                    packets,
                    client=client.client_id,
                    version=client.session.version,
                    broker=broker,
                    now_ms=monotonic_ms(),
                    again=bool(again),
                )
                packets.clear()
        if broker not in self._marking:
            loop = asyncio.get_running_loop()
            self._marking[broker] = loop.call_later(self._mark_s, self._mark, broker)

    def take(self, client: ProxiedClient) -> list[bytes]:
        """Remove and return what a dead broker acknowledged to ``client`` and may have lost."""
        version = client.session.version
        orphans = self._orphans.pop(client.client_id, [])
        others = [publication for publication in orphans if publication.version != version]
        if others:  # another client had this id; the gateway publishes for it
            self._orphans[client.client_id] = others
        kept = [publication.packet for publication in orphans if publication.version == version]
        self._counters.republished += len(kept)
        return kept

    def on_death(self, broker: BrokerId) -> None:
        """Hand what may be lost with ``broker`` to its clients; publish the rest later."""
        taken = self._journal.take_unsafe(broker)
        for client_id, publications in taken.items():
            self._orphans.setdefault(client_id, []).extend(publications)
        if taken:
            asyncio.get_running_loop().call_later(ORPHANS_S, self._publish_orphans)

    def _mark(self, broker: BrokerId) -> None:
        self._marking.pop(broker, None)
        self._send_mark(broker, anew=False)

    def _mark_again(self, broker: BrokerId, number: int) -> None:
        """Send another mark if mark ``number`` seems lost."""
        if self._journal.last_mark(broker) == number and self._journal.unsafe(broker):
            self._send_mark(broker, anew=True)

    def _send_mark(self, id: BrokerId, *, anew: bool) -> None:
        broker = self._context.brokers[id]
        number = self._journal.mark(id, anew=anew) if broker.up else None
        if number is not None:
            broker.send_mark(number)
            asyncio.get_running_loop().call_later(MARK_LOST_S, self._mark_again, id, number)

    def _publish_orphans(self) -> None:
        """Publish for clients that are gone, or attached elsewhere by now."""
        seeking = {client_id for client_id in self._orphans if self._seeks_broker(client_id)}
        for client_id in [*self._orphans]:
            if client_id not in seeking:
                publications = self._orphans.pop(client_id)
                self._counters.republished += len(publications)
                _republish(publications, self._context.serving)
        if seeking:
            asyncio.get_running_loop().call_later(ORPHANS_S, self._publish_orphans)

    def _seeks_broker(self, client_id: str) -> bool:
        """Whether the client with this id is connected and has no broker just now."""
        client = self._context.clients.get(client_id)
        return client is not None and client.session.state in (State.AWAY, State.JOINING)


def _republish(publications: Iterable[Publication], brokers: Sequence[Broker]) -> None:
    """Publish each on the first broker that takes it, by our own connection there."""
    lost = 0
    for publication in publications:
        packet = publication.as_v5()
        _, id_at = publish_id(packet, only(packet))
        lost += not any(
            broker.link.publish_packet(bytearray(packet), id_at, publication.qos)
            for broker in brokers
        )
    if lost:
        _log.error("gateway.publications_lost", publications=lost)
