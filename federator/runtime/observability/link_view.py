"""Our links, as pages and metrics show them: each address, and the traffic with each neighbour."""

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final, cast

from msgspec import UNSET

from federator.protocol.data.transports import Transports
from federator.protocol.links.standing import LinkJudge
from federator.protocol.telemetry.agent_status import LinkStatus
from federator.protocol.types import BrokerId
from federator.runtime.links.neighbour_links import NeighbourLink
from federator.runtime.observability.readiness import Readiness, way_of
from federator.runtime.process.clocks import monotonic_ms
from federator.runtime.steering.link_loads import LinkLoads

if TYPE_CHECKING:
    from federator.runtime.datagrams.service import DatagramService

LISTED_MAX: Final = 1_000
"""Links in one answer."""

Traffic = dict[str, float]


@dataclass(slots=True)
class LinkView:
    """Reads the links of one agent."""

    ready: Readiness
    transports: Transports
    loads: LinkLoads
    # The last neighbour at an address.
    _ids: dict[str, BrokerId] = field(default_factory=dict, init=False)

    def states(self) -> list[LinkStatus]:
        """The connections to neighbours, and what hinders a link over each."""
        judge = self.ready.judge()
        return [self._state(n, judge) for n in islice(self.ready.neighbours.all, LISTED_MAX)]

    def _state(self, neighbour: NeighbourLink, judge: LinkJudge) -> LinkStatus:
        links, now_ms = self.ready.node.links, monotonic_ms()
        connection = links.connections.get(neighbour.conn) if neighbour.conn else None
        verdict = judge.find(way_of(neighbour, joined=True), now_ms=now_ms)
        id_ = verdict.neighbour
        state = links.neighbours.get(id_) if id_ is not None else None
        rate, capacity = self.loads.rate(id_), self.loads.capacity(id_)
        transports = self.transports.snapshots(id_)
        return LinkStatus(
            neighbour=id_,
            name="" if id_ is None else self.ready.node.failover.name_of(id_),
            address=neighbour.address,
            dialled_back=neighbour.dialled_for is not None,
            dialled=_dialled(neighbour),
            cost=neighbour.cost if connection is None else connection.cost,
            connected=neighbour.connected,
            state=_state(neighbour, up=verdict.up),
            reason=verdict.reason,
            refuses=verdict.refuses,
            rtt_ms=None if state is None else state.round_trip_ms,
            rate=None if rate is None else round(rate),
            capacity=None if capacity is None else round(capacity),
            load=None if rate is None or not capacity else round(rate / capacity, 4),
            heard_ms_ago=UNSET if state is None else now_ms - state.heard_at_ms,
            datagrams=transports.get("datagrams", UNSET),
            direct=transports.get("direct", UNSET),
        )

    def traffic(self) -> list[Traffic]:
        """What each neighbour and we sent each other; one that is away keeps its row."""
        rows = {}
        for neighbour in self.ready.neighbours.all:
            if (id_ := self._id_behind(neighbour)) is not None:
                rows[id_] = self._traffic(neighbour, id_)
        addresses = {neighbour.address for neighbour in self.ready.neighbours.all}
        self._ids = {address: id_ for address, id_ in self._ids.items() if address in addresses}
        return list(rows.values())

    def _id_behind(self, neighbour: NeighbourLink) -> BrokerId | None:
        connections = self.ready.node.links.connections
        connection = connections.get(neighbour.conn) if neighbour.conn is not None else None
        if connection is not None and connection.neighbour is not None:
            self._ids[neighbour.address] = connection.neighbour
        expected = neighbour.expected_id if neighbour.expected_id else neighbour.dialled_for
        return self._ids.get(neighbour.address, expected)

    def _traffic(self, neighbour: NeighbourLink, id_: BrokerId) -> Traffic:
        state, cost = self.ready.node.links.neighbours.get(id_), self.ready.node.links.cost_to(id_)
        counters = [link.counters for link in neighbour.links]
        traffic: Traffic = {
            "neighbour": id_,
            "up": int(state is not None and state.up),
            "bytes_in": sum(one.bytes_in for one in counters),
            "bytes_out": sum(one.bytes_out for one in counters),
            "packets_out": sum(one.publishes_out for one in counters),
            "drops": sum(one.publishes_dropped for one in counters),
            "queue_bytes": sum(link.queued_bytes for link in neighbour.links),
            "reconnects": sum(max(0, one.connects - 1) for one in counters),
        }
        if cost is not None:
            traffic["cost"] = cost
        if (capacity := self.loads.capacity(id_)) is not None:
            traffic["capacity"] = capacity
        if state is not None and state.up and state.round_trip_ms is not None:
            traffic["rtt_s"] = state.round_trip_ms / 1_000
        if (queue := self.transports.queue_to(id_)) is not None:
            traffic["queue_bytes"] += queue.queued_bytes
        if (direct := self.transports.named("direct")) is not None:
            traffic["direct_used"] = int(direct.carries(id_))
            traffic["direct_bytes"] = direct.bytes_to(id_)
        return traffic | self._datagrams(id_)

    def _datagrams(self, id_: BrokerId) -> Traffic:
        datagrams = cast("DatagramService | None", self.transports.named("udp-fec"))
        link = datagrams.links().get(id_) if datagrams is not None else None
        if link is None:
            return {}
        return {
            "datagrams_used": int(link.usable),
            "datagrams_lost": link.sender.plr,
            "datagrams_burst": link.sender.abl,
            "datagram_parts": link.sender.counters.parts,
            "datagram_repairs": link.sender.counters.repairs,
            "datagram_rebuilt": link.receiver.counters.rebuilt_parts,
            "datagram_returned": link.sender.counters.given_back,
        }


def _dialled(neighbour: NeighbourLink) -> str:
    """Which side opens the connections of a link."""
    if neighbour.outbox_of is not None:
        return "by it alone"
    return "by us alone" if neighbour.takes_outbox else "by both"


def _state(neighbour: NeighbourLink, *, up: bool) -> str:
    if not neighbour.connected:
        return "connecting"
    return "up" if up else "down"
