"""Reads the values of an agent's metrics, at the moment of a scrape."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from prometheus_client.core import Metric

from federator.config import Settings
from federator.config.brokers import Credentials
from federator.config.certificates import expiries_s
from federator.protocol.controller.failover import Failover
from federator.protocol.forwarding.counters import DELAY_BOUNDS_US
from federator.protocol.links.links import Links
from federator.protocol.node import Node
from federator.protocol.policy.link_policies import LinkPolicies
from federator.protocol.types import BrokerId
from federator.runtime.custody.stores import counts
from federator.runtime.data.cover_subscriber import CoverSubscriber
from federator.runtime.data.data_path import DataPath
from federator.runtime.datagrams.service import DatagramService
from federator.runtime.discovery.service import Discovery
from federator.runtime.failover.prepared_sessions import PreparedSessions
from federator.runtime.failover.service import FailoverService
from federator.runtime.links.control_traffic import ControlTraffic
from federator.runtime.links.neighbour_links import NeighbourLink, NeighbourLinks
from federator.runtime.loops.watch import LoopWatch
from federator.runtime.mqtt.link import MqttLink
from federator.runtime.observability.metrics import AGENT, LINK
from federator.runtime.observability.readiness import Presence
from federator.runtime.observability.topology_view import links_told, mutual_links
from federator.runtime.process.exposition import Distribution, Labelled, Value, families
from federator.runtime.retained.retained import Retained
from federator.runtime.sharing.sharing import Sharing
from federator.runtime.telemetry.stream import MetricsStream
from federator.runtime.trust.guarding import Trust

LAGS_KEPT = 60
"""Of the latest probes of the event loop the worst counts: scrapes are rarer than probes."""

_Number = int | float
Values = dict[str, Value]


class LinkMetrics:
    """The metrics of links, by neighbour.

    Args:
        known: What the protocol knows of neighbours.
        neighbours: The connections to their brokers.
        datagrams: Links over datagrams, where there are any.
    """

    def __init__(
        self, known: Links, neighbours: NeighbourLinks, datagrams: DatagramService | None
    ) -> None:
        self._known = known
        self._neighbours = neighbours
        self._datagrams = datagrams
        self._ids: dict[str, BrokerId] = {}  # who was last behind an address

    def read(self) -> Mapping[str, Labelled]:
        """Values by attribute and neighbour; a neighbour that is down keeps its row."""
        values: dict[str, dict[tuple[str, ...], _Number]] = {row.attribute: {} for row in LINK}
        for neighbour in self._neighbours.all:
            id_ = self._id_behind(neighbour)
            if id_ is not None:
                for attribute, value in self._link(neighbour, id_).items():
                    values[attribute][(str(id_),)] = value
        addresses = {neighbour.address for neighbour in self._neighbours.all}
        self._ids = {address: id_ for address, id_ in self._ids.items() if address in addresses}
        return values

    def _id_behind(self, neighbour: NeighbourLink) -> BrokerId | None:
        connections = self._known.connections
        connection = connections.get(neighbour.conn) if neighbour.conn is not None else None
        if connection is not None and connection.neighbour is not None:
            self._ids[neighbour.address] = connection.neighbour
        expected = neighbour.expected_id if neighbour.expected_id else neighbour.dialled_for
        return self._ids.get(neighbour.address, expected)

    def _link(self, neighbour: NeighbourLink, id_: BrokerId) -> dict[str, _Number]:
        links = self._known
        known, cost = links.neighbours.get(id_), links.cost_to(id_)
        counters = [link.counters for link in neighbour.links]
        values: dict[str, _Number] = {
            "up": int(known is not None and known.up),
            "bytes_in": sum(each.bytes_in for each in counters),
            "bytes_out": sum(each.bytes_out for each in counters),
            "packets_out": sum(each.publishes_out for each in counters),
            "drops": sum(each.publishes_dropped for each in counters),
            "queue_bytes": sum(link.queued_bytes for link in neighbour.links),
            "reconnects": sum(max(0, each.connects - 1) for each in counters),
        }
        if cost is not None:
            values["cost"] = cost
        if known is not None and known.up and known.round_trip_ms is not None:
            values["rtt_s"] = known.round_trip_ms / 1_000
        return values | self._datagram_link(id_)

    def _datagram_link(self, id_: BrokerId) -> dict[str, _Number]:
        datagrams = self._datagrams
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


class AgentMetrics:
    """The metrics of one agent, which its parts tell, and how late its event loop is.

    Args:
        values: Reads those of the parts, by the attributes that the table of metrics names.
        links: Reads those of links.
        credentials: Whose certificates expire.

    Attributes:
        http_refused: HTTP connections refused; set by whoever is told.
    """

    def __init__(
        self,
        values: Callable[[], Values],
        links: LinkMetrics,
        credentials: Iterable[Credentials],
    ) -> None:
        self.http_refused = 0
        self._values = values
        self._links = links
        self._lags_s: deque[float] = deque([0.0], maxlen=LAGS_KEPT)
        ends_s = expiries_s(each.cert_file for each in credentials)
        self._tls: Labelled = {(file,): end_s for file, end_s in ends_s.items()}

    async def measure_lag(self, interval_s: float) -> None:
        """Keep noting how late the event loop runs a timer."""
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + interval_s
            await asyncio.sleep(interval_s)
            self._lags_s.append(max(0.0, loop.time() - due_s))

    def read(self, *, ready: bool) -> Iterator[Metric]:
        """All metric families, read now."""
        values: Values = {
            **self._values(),
            "ready": int(ready),
            "loop_lag_s": max(self._lags_s),
            "http_refused": self.http_refused,
            "tls_expiry": self._tls,
        }
        return chain(families(AGENT, values), families(LINK, self._links.read()))


def about_values(settings: Settings) -> Values:
    """Who the agent is."""
    strategy = settings.routing.strategy
    who = (settings.federation, str(settings.broker_id), settings.security, strategy)
    return {"about": {who: 1}}


def state_values(
    settings: Settings,
    *,
    node: Node,
    presence: Presence,
    neighbours: NeighbourLinks,
    own_links: Sequence[MqttLink],
    data_path: DataPath,
    discovery: Discovery,
    loops: LoopWatch,
) -> Values:
    """What the agent has, knows and is connected to."""
    meshes, straight = node.meshes.states.values(), node.topic_routing.states.values()
    links = [*own_links, *(link for n in neighbours.all for link in n.links)]
    return {
        "broker_connected": int(presence.up),
        "epoch": node.links.epoch,
        "neighbours": len(neighbours.all),
        "neighbours_up": len(node.links.up),
        "cores": len(node.announcements.routes),
        "filters": len(meshes) + len(straight),
        "filters_limit": settings.mesh.filters_max,
        "local_filters": sum(s.local for s in meshes) + sum(s.local for s in straight),
        "destinations": sum(len(s.brokers) for s in straight),
        "widened": int(discovery.widened),
        "topic_cache_size": data_path.forwarder.topics_cached,
        "origins": data_path.origins,
        "send_queue_bytes": sum(link.queued_bytes for link in links),
        "send_queue_limit": settings.links.send_queue_bytes_max,
        "reconnects": sum(max(0, link.counters.connects - 1) for link in links),
        "bridges": len(loops.bridges),
        "bridge_loops": loops.detector.loop_count,
    }


def traffic_values(
    *,
    data_path: DataPath,
    discovery: Discovery,
    cover: CoverSubscriber,
    link_policies: LinkPolicies,
    loops: LoopWatch,
) -> Values:
    """How publications and frames fared."""
    data, delays, found = data_path.counters, data_path.delays, discovery.snapshot()
    bounds_s = [bound_us / 1_000_000 for bound_us in DELAY_BOUNDS_US]
    return {
        "publications_in": data.publications_in,
        "publications_out": data.delivered_publications,
        "publications_sent": data.publications_out,
        "publications_relayed": data.relayed,
        "publications_unrouted": data.no_route,
        "publications_dropped": data.dropped,
        "publications_duplicate": data.duplicates_suppressed,
        "publications_deferred": data.deferred,
        "copies_dropped": cover.duplicates_dropped,
        "frames_in": data.frames_in,
        "frames_out": data.frames_out,
        "frame_bytes_in": data.frame_bytes_in,
        "frame_bytes_out": data.frame_bytes_out,
        "frames_duplicate": data.duplicate_frames,
        "frames_malformed": data.malformed_frames,
        "frames_hop_limit": data.hop_limit_exceeded,
        "frames_of_strangers": data.frames_of_strangers,
        "frames_ahead": delays.ahead,
        "filters_unknown": data.unknown_filters,
        "client_drops": found["broker_drops"],
        "rules_withheld": link_policies.withheld_in + link_policies.withheld_out,
        "bridge_loop_drops": loops.detector.dropped,
        "log_lines": found["lines"],
        "log_lines_ambiguous": found["ambiguous"],
        "log_lines_malformed": found["unreadable"],
        "delay": Distribution(bounds_s, delays.counts, delays.sum_us / 1_000_000),
    }


def control_values(traffic: ControlTraffic, trust: Trust | None) -> Values:
    """Control messages by kind."""
    refused: Counter[str] = Counter() if trust is None else trust.refused
    return {
        "control_in": _by_kind(traffic.received),
        "control_out": _by_kind(traffic.sent),
        "control_bytes_out": _by_kind(traffic.sent_bytes),
        "control_malformed": _by_kind(traffic.malformed),
        "control_dropped": _by_kind(traffic.dropped),
        "trust_refused": _by_kind(refused),
    }


def feature_values(
    settings: Settings, *, data_path: DataPath, sharing: Sharing, retained: Retained | None
) -> Values:
    """Custody, shared groups and retained values."""
    custody = counts(data_path.custody, data_path.stores)
    values: dict[str, Value] = {
        "custody_log_limit": settings.custody.bytes_max,
        **{f"custody_{name}": count for name, count in custody.items()},
        **{f"share_{name}": count for name, count in sharing.counts().items()},
    }
    if retained is not None:
        values |= {
            "retained_topics": len(retained.store) - retained.store.tombstones,
            "retained_tombstones": retained.store.tombstones,
            "retained_fetched": retained.counters.values_fetched,
            "retained_given": retained.counters.values_given,
            "retained_outdated": retained.counters.outdated,
            "retained_failed": retained.counters.failed,
        }
    return values


def failover_values(
    settings: Settings, *, failover: Failover, prepared: PreparedSessions, service: FailoverService
) -> Values:
    """The controller, and what we do for it."""
    if not failover.active:
        return {}
    us, takeovers = settings.broker_id, failover.duties.takeovers
    draining = failover.self_state.draining
    states = Counter(known.state for _, known in failover.presence)
    states["draining" if draining else "up"] += 1
    return {
        "controller": failover.controller,
        "in_office": int(failover.is_controller),
        "draining": int(draining),
        "takeovers": len(takeovers),
        "stood_in": sum(made.substitute == us for made in takeovers.values()),
        "flow_rows": len(failover.table),
        "sessions_waiting": len(prepared.waiting),
        "local_clients": service.clients,
        "brokers": {(state,): states[state] for state in ("up", "draining", "gone")},
        "sessions_prepared": prepared.prepared,
        "sessions_refused": prepared.refused,
    }


def topology_values(node: Node, *, wanted: int) -> Values:
    """Links that arrange themselves."""
    if not node.topology.active:
        return {}
    told = links_told(node)
    return {
        "topology_brokers": len(told),
        "topology_links": sum(1 for _ in mutual_links(told)),
        "topology_wanted": wanted,
        "topology_given_up": node.topology.changes,
    }


def trust_values(trust: Trust | None) -> Values:
    """Our keys."""
    if trust is None:
        return {}
    guard = trust.guard
    return {
        "certificate_expiry": guard.ours.certificate.expires_s,
        "trusted_keys": len(guard.authority.trusted),
    }


def datagram_values(service: DatagramService | None) -> Values:
    """Links over datagrams."""
    if service is None:
        return {}
    return {
        "datagrams_out": service.counters.datagrams_out,
        "datagrams_in": service.counters.datagrams_in,
        "datagram_bytes_out": service.counters.bytes_out,
        "datagrams_refused": service.counters.refused,
        "datagrams_unsent": service.counters.unsent,
    }


def stream_values(stream: MetricsStream | None, *, bytes_max: int) -> Values:
    """The metrics stream."""
    if stream is None:
        return {}
    return {
        "stream_bytes": stream.spool.bytes_held,
        "stream_limit": bytes_max,
        "stream_batches": stream.spool.written,
        "stream_dropped": stream.spool.dropped,
        "stream_lost": stream.records_lost,
        "stream_failures": stream.failures,
        "stream_answers": stream.replay.answered,
        "stream_refused": stream.replay.refused,
        "stream_malformed": stream.replay.malformed,
    }


def _by_kind(counter: Counter[str]) -> Labelled:
    return {(kind,): count for kind, count in counter.items()}
