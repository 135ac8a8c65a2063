"""The load of our links, sampled once a second: bytes sent and waiting, and the capacity.

Source: docs/observability.md, "How full links are".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from federator.config.brokers import NeighbourSettings
from federator.protocol.data.transports import Transports
from federator.protocol.links.links import Links
from federator.protocol.messages.steering import LINKS_MAX, LinkLoad
from federator.protocol.policy.link_policies import LinkPolicies
from federator.protocol.steering.link_meter import LinkMeter, LinkSample
from federator.protocol.types import BrokerId, Millis
from federator.runtime.links.neighbour_links import NeighbourLinks
from federator.runtime.mqtt.link import MqttLink
from federator.runtime.mqtt.parts import Part
from federator.runtime.process.clocks import beat, monotonic_ms

SAMPLE_S: Final = 1.0


@dataclass(kw_only=True, eq=False, repr=False)
class LinkLoads:
    """The load of each of our links, and its capacity."""

    links: Links
    connections: NeighbourLinks
    transports: Transports
    policies: LinkPolicies

    def __post_init__(self) -> None:
        self._meter = LinkMeter()
        self._named: Sequence[NeighbourSettings] | None = None
        self._capacities: Mapping[BrokerId, int | None] = {}

    def part(self) -> Part:
        return Part(tasks={"link loads": self.run})

    async def run(self) -> None:
        while True:
            self.sample(monotonic_ms())
            await beat(SAMPLE_S)

    def sample(self, now_ms: Millis) -> None:
        """Sample the bytes sent to each neighbour, and those waiting."""
        samples: dict[BrokerId, LinkSample] = {}
        for id in self.links.up:
            if (link := self._data_link(id)) is not None:
                left = link.bytes_arrived + self.transports.bytes_to(id)
                used = self.transports.queue_to(id) or link
                samples[id] = LinkSample(now_ms, left, used.waiting_bytes, used.stint)
        self._meter.take(samples)

    def rate(self, neighbour: BrokerId | None) -> float | None:
        """Recent data rate in bit/s; ``None`` while unknown."""
        return None if neighbour is None else self._meter.rate(neighbour)

    def capacity(self, neighbour: BrokerId | None) -> float | None:
        """bit/s: as configured, else as learnt, else ``None``."""
        if neighbour is None:
            return None
        configured = self._configured_of(neighbour)
        return self._meter.capacity(neighbour) if configured is None else float(configured)

    def report(self) -> tuple[LinkLoad, ...]:
        """The links that are up."""
        return tuple(
            LinkLoad(
                neighbour=id,
                cost=connection.cost,
                rate=self._meter.rate(id) or 0.0,
                queue=self._meter.queue_bytes(id),
                capacity=self.capacity(id),
                learnt=self._configured_of(id) is None and self.capacity(id) is not None,
                open=self.policies.rules_of(id).stops_nothing,
            )
            for id, connection in list(self.links.up.items())[:LINKS_MAX]
        )

    def _configured_of(self, neighbour: BrokerId) -> int | None:
        """In bit/s."""
        configured = self._configured().get(neighbour)
        if configured is None and (link := self._data_link(neighbour)) is not None:
            dialled = self.connections.having(link)
            return None if dialled is None else dialled.capacity  # configured by address alone
        return configured

    def _configured(self) -> Mapping[BrokerId, int | None]:
        """The configured capacities by id, as of the last reload."""
        named = self.connections.settings.neighbours
        if named is not self._named:
            self._named = named
            capacities = [(n.id, n.capacity) for n in reversed(named) if n.id is not None]
            self._capacities = {BrokerId(id): capacity for id, capacity in capacities}
        return self._capacities

    def _data_link(self, neighbour: BrokerId) -> MqttLink | None:
        peer = self.links.neighbours.get(neighbour)
        return self.connections.data_of(peer.conn) if peer and peer.conn is not None else None
