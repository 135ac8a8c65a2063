"""The agent's state as rows: links, control traffic, announcements, and the agent itself.

Counters that the agent keeps since its start are told as differences between two looks.

Source: docs/metrics.md, "links", "control", "announcements", "agents".
"""

import os
import time
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from federator.protocol.metric_records import Agents, Announcements, Control, Links
from federator.protocol.types import BrokerId
from federator.runtime.metrics_stream.echo import BrokerEcho
from federator.runtime.metrics_stream.peers import PeerTraffic
from federator.runtime.metrics_stream.sums import Neighbour, Row
from federator.runtime.mqtt_link import MqttLink

if TYPE_CHECKING:
    from federator.runtime.agent import Agent

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


class AgentState:
    """Looks at one agent.

    Args:
        agent: At whom.
        peers: Its control traffic.
        echo: Measures its broker.
    """

    def __init__(self, agent: "Agent", peers: PeerTraffic, echo: BrokerEcho) -> None:
        self._echo = echo
        self._agent = agent
        self._peers = peers
        self._before: dict[str, int] = {}
        self._sys: dict[str, int] = {}

    def on_sys(self, topic: str, payload: bytes) -> None:
        """Our broker tells of itself."""
        if topic in SYS_TOPICS and len(payload) <= 18 and payload.isdigit():
            self._sys[topic] = int(payload)

    def rows(
        self, carried: Mapping[BrokerId, Neighbour], when: dict[str, Any], *, lag_us: int
    ) -> list[Row]:
        """The rows of one window.

        Args:
            carried: What each link carried.
            when: ``at_us`` and ``window_ms``.
            lag_us: The longest the event loop was late.
        """
        rows = self._links(carried, when)
        rows += self._control(when)
        made = self._since("announcements", self._agent.node.announcements.own.seq)
        if made:
            told = {"announcements": made, "links_known": self._links_known()}
            rows.append((Announcements, when | told))
        rows.append((Agents, when | self._self(lag_us)))
        return rows

    # Within

    def _since(self, name: str, now: int) -> int:
        """How much a counter grew; one that began anew, all of it."""
        before, self._before[name] = self._before.get(name, 0), now
        return now - before if now >= before else now

    def _links(self, carried: Mapping[BrokerId, Neighbour], when: dict[str, Any]) -> list[Row]:
        links = self._agent.node.links
        queues = {self._broker_of(n.data): n for n in self._agent.neighbours.all}
        rows: list[Row] = []
        for id_ in sorted({*links.neighbours, *carried}):
            known, link = links.neighbours.get(id_), queues.get(id_)
            round_trip_ms = known.round_trip_ms if known is not None else None
            counts = carried.get(id_, Neighbour())
            fields: dict[str, Any] = {
                "neighbour": id_,
                "up": int(known is not None and known.up),
                "cost": links.cost_to(id_) or 0,
                "round_trip_us": None if round_trip_ms is None else 1_000 * max(0, round_trip_ms),
                "queue_bytes": 0 if link is None else sum(k.queued_bytes for k in link.links),
            }
            fields |= {name: getattr(counts, name) for name in counts.__slots__}
            rows.append((Links, when | fields))
        return rows

    def _control(self, when: dict[str, Any]) -> list[Row]:
        counts = self._peers.take(self._broker_of)
        return [
            (
                Control,
                when
                | {
                    "neighbour": neighbour,
                    "kind": kind,
                    "direction": direction,
                    "messages": messages,
                    "bytes": size,
                },
            )
            for (neighbour, kind, direction), (messages, size) in counts.items()
        ]

    def _broker_of(self, peer: Hashable) -> BrokerId | None:
        """Whose broker a connection leads to; a broker's id is itself."""
        if not isinstance(peer, MqttLink):
            return BrokerId(peer) if isinstance(peer, int) else None
        said = self._agent.neighbour_at(peer)
        neighbour = self._agent.neighbours.having(peer)
        return said if said is not None or neighbour is None else neighbour.expected_id

    def _links_known(self) -> int | None:
        """Links of the federation: each is told by both its ends."""
        failover = self._agent.node.failover
        if not failover.active:
            return None
        ends = sum(len(known.record.links) for _, known in failover.presence if known.present)
        return (ends + len(self._agent.node.links.up) + 1) // 2

    def _self(self, lag_us: int) -> dict[str, Any]:
        agent = self._agent
        counters, custody = agent.data_path.counters, agent.data_path
        parameters = agent.settings.parameters()
        links = [link for n in agent.neighbours.all for link in n.links]
        links += [agent.control_link, agent.data_link]
        told: dict[str, Any] = {
            name: self._since(name, getattr(counters, attribute))
            for name, attribute in _COUNTED.items()
        }
        return told | {
            "clients": agent.failover.clients if agent.settings.failover.enabled else None,
            "filters": len(agent.forwarder),
            "local_filters": agent.discovery.wanted_count,
            "custody_bytes": custody.custody_log.bytes,
            "custody_gaps": custody.custody.destination.receiver.gaps,
            "send_queue_bytes": sum(link.queued_bytes for link in links),
            "cpu_us": self._since("cpu_us", int(time.process_time() * 1_000_000)),
            "rss_bytes": _rss_bytes(),
            "loop_lag_us": lag_us,
            "broker_clients": self._sys.get(CLIENTS_TOPIC),
            "broker_messages_in": self._sys.get(RECEIVED_TOPIC),
            "broker_messages_out": self._sys.get(SENT_TOPIC),
            "broker_round_trip_us": self._echo.take_us(),
            "strategy": str(parameters.strategy.value),
            "redundancy": parameters.redundancy,
            "link_count": len(agent.node.links.neighbours),
        }


def _rss_bytes() -> int | None:
    try:
        return int(_STATM.read_text().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return None
