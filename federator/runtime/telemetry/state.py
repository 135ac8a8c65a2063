"""The agent's state as rows: links, flows, control traffic, announcements, and the agent itself.

Counters since the start are reported as differences between two windows.

Source: docs/metrics.md, "links", "flows", "control", "announcements", "agents".
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from mqtt5 import PublishPacket

from federator.protocol.messages.steering import FlowLoad
from federator.protocol.node import Node
from federator.protocol.parameters import Parameters
from federator.protocol.telemetry.records import (
    FLOWS_MAX,
    Agents,
    Announcements,
    Control,
    Flows,
    Links,
    Row,
    flow_name,
)
from federator.protocol.types import BrokerId
from federator.runtime.data.data_path import DataPath
from federator.runtime.discovery.echo import BrokerEcho
from federator.runtime.discovery.service import Discovery
from federator.runtime.links.control_traffic import ControlTraffic
from federator.runtime.mqtt.link import MqttLink

CLIENTS_TOPIC: Final = "$SYS/broker/clients/connected"
RECEIVED_TOPIC: Final = "$SYS/broker/messages/received"
SENT_TOPIC: Final = "$SYS/broker/messages/sent"
SYS_TOPICS: Final = (CLIENTS_TOPIC, RECEIVED_TOPIC, SENT_TOPIC)

_STATM: Final = Path("/proc/self/statm")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_COUNTED: Final = {
    "publications_in": "publications_in",
    "publications_out": "publications_out",
    "delivered": "delivered_publications",
    "no_route": "no_route",
    "dropped": "dropped",
    "deferred": "deferred",
}


@dataclass(slots=True, kw_only=True)
class AgentState:
    """Reads the state of one agent, at the end of each window."""

    node: Node
    parameters: Parameters
    traffic: ControlTraffic
    own_links: Sequence[MqttLink]  # to our own broker
    data_path: DataPath
    discovery: Discovery
    clients: Callable[[], int | None]  # connected to our broker; ``None`` if they are not counted
    echo: BrokerEcho
    capacity: Callable[[BrokerId], float | None]  # of the link to a neighbour, in bit/s
    _before: dict[str, int] = field(default_factory=dict, init=False)
    _sys: dict[str, int] = field(default_factory=dict, init=False)

    def on_sys(self, packet: PublishPacket) -> None:
        """Note one of the counts that our broker publishes."""
        topic, payload = packet.topic, packet.payload
        if len(payload) <= 18 and payload.isdigit():
            self._sys[topic] = int(payload)

    def rows(
        self, carried: Mapping[BrokerId, Counter[str]], when: dict[str, Any], *, lag_us: int
    ) -> list[Row]:
        """The rows of one window, in which the event loop was ``lag_us`` late at worst."""
        rows = self._links(carried, when)
        flows, _ = self.data_path.flows.told(self.data_path.forwarder, most=FLOWS_MAX)
        rows += flow_rows(flows, when)
        rows += self._control(when)
        made = self._since("announcements", self.node.announcements.own.seq)
        if made:
            counts = {"announcements": made, "links_known": self._links_known()}
            rows.append((Announcements, when | counts))
        rows.append((Agents, when | self._self(lag_us)))
        return rows

    # Within

    def _since(self, name: str, now: int) -> int:
        """The growth of a counter since the last call; all of it if it was reset."""
        before, self._before[name] = self._before.get(name, 0), now
        return now - before if now >= before else now

    def _links(self, carried: Mapping[BrokerId, Counter[str]], when: dict[str, Any]) -> list[Row]:
        links = self.node.links
        queues = {self._broker_of(n.data): n for n in self.traffic.connections.all}
        rows: list[Row] = []
        for id_ in sorted({*links.neighbours, *carried}):
            neighbour, link = links.neighbours.get(id_), queues.get(id_)
            round_trip_ms = neighbour.round_trip_ms if neighbour is not None else None
            capacity = self.capacity(id_)
            fields: dict[str, Any] = {
                "neighbour": id_,
                "up": int(neighbour is not None and neighbour.up),
                "cost": links.cost_to(id_) or 0,
                "round_trip_us": None if round_trip_ms is None else 1_000 * max(0, round_trip_ms),
                "queue_bytes": 0 if link is None else sum(k.queued_bytes for k in link.links),
                "capacity": None if capacity is None else round(capacity),
            }
            rows.append((Links, when | fields | carried.get(id_, {})))
        return rows

    def _control(self, when: dict[str, Any]) -> list[Row]:
        peers = self.traffic.peers
        assert peers is not None, "control messages are counted where metrics are kept"
        names = ("neighbour", "kind", "direction", "messages", "bytes")
        return [
            (Control, when | dict(zip(names, (*which, *sums), strict=True)))
            for which, sums in peers.take(self._broker_of).items()
        ]

    def _broker_of(self, peer: Hashable) -> BrokerId | None:
        """The broker that a connection leads to; a broker's id is itself."""
        if not isinstance(peer, MqttLink):
            return BrokerId(peer) if isinstance(peer, int) else None
        hello_sender = self.traffic.neighbour_at(peer)
        neighbour = self.traffic.connections.having(peer)
        return (
            hello_sender if hello_sender is not None or neighbour is None else neighbour.expected_id
        )

    def _links_known(self) -> int | None:
        """Links of the federation: each is reported by both its ends."""
        failover = self.node.failover
        if not failover.active:
            return None
        ends = sum(len(member.record.links) for _, member in failover.presence if member.present)
        return (ends + len(self.node.links.up) + 1) // 2

    def _self(self, lag_us: int) -> dict[str, Any]:
        data_path, parameters = self.data_path, self.parameters
        links = [link for n in self.traffic.connections.all for link in n.links]
        links += self.own_links
        counts: dict[str, Any] = {
            name: self._since(name, getattr(data_path.counters, attribute))
            for name, attribute in _COUNTED.items()
        }
        return counts | {
            "clients": self.clients(),
            "filters": len(data_path.forwarder),
            "local_filters": self.discovery.known.wanted_count,
            "custody_bytes": data_path.stores.log.bytes,
            "custody_gaps": data_path.custody.destination.receiver.gaps,
            "send_queue_bytes": sum(link.queued_bytes for link in links),
            "cpu_us": self._since("cpu_us", int(time.process_time() * 1_000_000)),
            "rss_bytes": rss_bytes(),
            "loop_lag_us": lag_us,
            "broker_clients": self._sys.get(CLIENTS_TOPIC),
            "broker_messages_in": self._sys.get(RECEIVED_TOPIC),
            "broker_messages_out": self._sys.get(SENT_TOPIC),
            "broker_round_trip_us": self.echo.take_us(),
            "strategy": str(parameters.strategy.value),
            "redundancy": parameters.redundancy,
            "link_count": len(self.node.links.neighbours),
            "name": self.node.failover.name_of(self.node.links.self_id) or None,
        }


def flow_rows(flows: Sequence[FlowLoad], when: dict[str, Any]) -> list[Row]:
    """A row for each of ``flows``: few, by short names, as clients choose number and filters."""
    return [
        (
            Flows,
            when
            | {
                "flow": flow_name(flow.filters),
                "rate": round(flow.rate),
                "error": round(flow.error),
                "publications_per_min": round(60 * flow.publications),
                "destinations": len(flow.destinations),
                "planned": int(flow.planned),
            },
        )
        for flow in flows[:FLOWS_MAX]
    ]


def rss_bytes() -> int | None:
    try:
        return int(_STATM.read_text().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return None
