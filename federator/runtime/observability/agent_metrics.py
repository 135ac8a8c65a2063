"""Reads the values of an agent's metrics, at the moment of a scrape."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from federator.config.settings import Settings
from federator.protocol.controller.failover import Failover
from federator.protocol.forwarding.counters import DELAY_BOUNDS_US
from federator.protocol.links.links import Links
from federator.protocol.node import Node
from federator.protocol.opentelemetry.spans import PLACES
from federator.protocol.policy.link_policies import LinkPolicies
from federator.protocol.types import BrokerId
from federator.runtime.custody.stores import counts
from federator.runtime.data.cover_subscriber import CoverSubscriber
from federator.runtime.data.data_path import DataPath
from federator.runtime.discovery.service import Discovery
from federator.runtime.failover.prepared_sessions import PreparedSessions
from federator.runtime.failover.service import FailoverService
from federator.runtime.links.control_traffic import ControlTraffic
from federator.runtime.links.neighbour_links import NeighbourLink, NeighbourLinks
from federator.runtime.loops.watch import LoopWatch
from federator.runtime.mqtt.link import MqttLink
from federator.runtime.observability.metrics import LINK
from federator.runtime.observability.readiness import Presence
from federator.runtime.observability.topology_view import links_told, mutual_links
from federator.runtime.process.exposition import Distribution, Labelled, Value
from federator.runtime.retained.retained import Retained
from federator.runtime.sharing.sharing import Sharing
from federator.runtime.steering.link_loads import LinkLoads
from federator.runtime.storage import damage
from federator.runtime.telemetry.stream import MetricsStream
from federator.runtime.trust.guarding import Trust

if TYPE_CHECKING:
    from federator.runtime.datagrams.service import DatagramService
    from federator.runtime.direct.service import DirectLinks
    from federator.runtime.opentelemetry.reporter import SpanReporter

_Number = int | float
Values = dict[str, Value]


@dataclass(slots=True)
class LinkMetrics:
    """The metrics of links, by neighbour."""

    known: Links
    neighbours: NeighbourLinks
    datagrams: "DatagramService | None"
    direct: "DirectLinks | None"
    loads: LinkLoads
    _ids: dict[str, BrokerId] = field(default_factory=dict)  # the last neighbour at an address

    def read(self) -> Mapping[str, Labelled]:
        """Values by attribute and neighbour; a neighbour that is down keeps its row."""
        values: dict[str, dict[tuple[str, ...], _Number]] = {row.attribute: {} for row in LINK}
        for neighbour in self.neighbours.all:
            id_ = self._id_behind(neighbour)
            if id_ is not None:
                for attribute, value in self._link(neighbour, id_).items():
                    values[attribute][(str(id_),)] = value
        addresses = {neighbour.address for neighbour in self.neighbours.all}
        self._ids = {address: id_ for address, id_ in self._ids.items() if address in addresses}
        return values

    def _id_behind(self, neighbour: NeighbourLink) -> BrokerId | None:
        connections = self.known.connections
        connection = connections.get(neighbour.conn) if neighbour.conn is not None else None
        if connection is not None and connection.neighbour is not None:
            self._ids[neighbour.address] = connection.neighbour
        expected = neighbour.expected_id if neighbour.expected_id else neighbour.dialled_for
        return self._ids.get(neighbour.address, expected)

    def _link(self, neighbour: NeighbourLink, id_: BrokerId) -> dict[str, _Number]:
        links = self.known
        state, cost = links.neighbours.get(id_), links.cost_to(id_)
        counters = [link.counters for link in neighbour.links]
        values: dict[str, _Number] = {
            "up": int(state is not None and state.up),
            "bytes_in": sum(one.bytes_in for one in counters),
            "bytes_out": sum(one.bytes_out for one in counters),
            "packets_out": sum(one.publishes_out for one in counters),
            "drops": sum(one.publishes_dropped for one in counters),
            "queue_bytes": sum(link.queued_bytes for link in neighbour.links),
            "reconnects": sum(max(0, one.connects - 1) for one in counters),
        }
        if cost is not None:
            values["cost"] = cost
        if (capacity := self.loads.capacity(id_)) is not None:
            values["capacity"] = capacity
        if state is not None and state.up and state.round_trip_ms is not None:
            values["rtt_s"] = state.round_trip_ms / 1_000
        if self.direct is not None:
            straight = self.direct.link_to(id_)
            values["direct_used"] = int(straight is not None)
            values["direct_bytes"] = self.direct.bytes_to(id_)
            if straight is not None:
                values["queue_bytes"] += straight.queued_bytes
        return values | self._datagram_link(id_)

    def _datagram_link(self, id_: BrokerId) -> dict[str, _Number]:
        datagrams = self.datagrams
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
    """The agent's identity, state and connections."""
    strategy = settings.routing.strategy
    identity = (settings.federation, str(settings.broker_id), settings.security, strategy)
    name = settings.broker.name
    meshes, straight = node.meshes.states.values(), node.topic_routing.states.values()
    links = [*own_links, *(link for n in neighbours.all for link in n.links)]
    return {
        "about": {identity: 1},
        **({"called": {(str(settings.broker_id), name): 1}} if name else {}),
        "broker_connected": int(presence.up),
        "epoch": node.links.epoch,
        "neighbours": len(neighbours.all),
        "neighbours_up": len(node.links.up),
        "cores": len(node.announcements.routes),
        "filters": len(meshes) + len(straight),
        "filters_limit": settings.mesh.filters_max,
        "local_filters": sum(s.local for s in meshes) + sum(s.local for s in straight),
        "destinations": sum(len(s.brokers) for s in straight),
        "widened": int(discovery.known.widened),
        "topic_cache_size": data_path.forwarder.topics_cached,
        "origins": data_path.plane.origins,
        "send_queue_bytes": sum(link.queued_bytes for link in links),
        "send_queue_limit": settings.links.send_queue_bytes_max,
        "reconnects": sum(max(0, link.counters.connects - 1) for link in links),
        "rejected": sum(link.counters.publishes_rejected for link in links),
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
    """Publications and frames."""
    data, delays, lines = asdict(data_path.counters), data_path.delays, discovery.snapshot()
    del data["unwanted"], data["redelivered"]  # only /status has them
    bounds_s = [bound_us / 1_000_000 for bound_us in DELAY_BOUNDS_US]
    return {
        **data,
        "copies_dropped": cover.duplicates_dropped,
        "frames_ahead": delays.ahead,
        "client_drops": lines["broker_drops"],
        "rules_withheld": link_policies.withheld_in + link_policies.withheld_out,
        "bridge_loop_drops": loops.detector.dropped,
        "log_lines": lines["lines"],
        "log_lines_ambiguous": lines["ambiguous"],
        "log_lines_malformed": lines["unreadable"],
        "delay": Distribution(bounds_s, delays.counts, delays.sum_us / 1_000_000),
    }


def control_values(traffic: ControlTraffic, trust: Trust | None) -> Values:
    """Control messages by kind, and our keys."""
    counters: dict[str, Counter[str]] = {
        "control_in": traffic.received,
        "control_out": traffic.sent,
        "control_bytes_out": traffic.sent_bytes,
        "control_malformed": traffic.malformed,
        "control_dropped": traffic.dropped,
        "control_refused": traffic.refused,
        "trust_refused": Counter() if trust is None else trust.words.refused,
    }
    values: Values = {
        name: {(kind,): count for kind, count in counter.items()}
        for name, counter in counters.items()
    }
    if trust is not None:
        values["certificate_expiry"] = trust.guard.ours.certificate.expires_s
        values["trusted_keys"] = len(trust.guard.authority.trusted)
    return values


def feature_values(
    settings: Settings, *, data_path: DataPath, sharing: Sharing, retained: Retained | None
) -> Values:
    """Custody, shared groups, retained values, and their files."""
    custody = counts(data_path.custody, data_path.stores)
    values: dict[str, Value] = {
        "damaged": {(kind,): places for kind, places in damage.found().items()},
        "custody_log_limit": settings.custody.bytes_max,
        **{f"custody_{name}": count for name, count in custody.items()},
        **{f"share_{name}": count for name, count in sharing.counts().items()},
    }
    if retained is not None:
        values |= {
            "retained_topics": len(retained.store) - retained.store.tombstones,
            "retained_tombstones": retained.store.tombstones,
            "retained_guests": retained.store.places.guests,
            "retained_refused": retained.store.places.refused,
            "retained_full": int(retained.store.places.crowded),
            "retained_fetched": retained.counters.values_fetched,
            "retained_given": retained.counters.values_given,
            "retained_too_long": retained.counters.too_long,
            "retained_outdated": retained.counters.outdated,
            "retained_failed": retained.counters.failed,
        }
    return values


def failover_values(
    settings: Settings, *, failover: Failover, prepared: PreparedSessions, service: FailoverService
) -> Values:
    """The controller, and our part in failover."""
    if not failover.active:
        return {}
    us, takeovers = settings.broker_id, failover.duties.takeovers
    draining = failover.self_state.draining
    states = Counter(member.state for _, member in failover.presence)
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
        "names_refused": failover.presence.names_refused,
    }


def topology_values(node: Node, *, wanted: int) -> Values:
    """Links that arrange themselves."""
    if not node.topology.active:
        return {}
    links = links_told(node)
    return {
        "topology_brokers": len(links),
        "topology_links": sum(1 for _ in mutual_links(links)),
        "topology_wanted": wanted,
        "topology_given_up": node.topology.changes,
    }


def datagram_values(service: "DatagramService | None") -> Values:
    """Links over datagrams."""
    if service is None:
        return {}
    counters = service.counters
    return {
        "datagrams_out": counters.datagrams_out,
        "datagrams_in": counters.datagrams_in,
        "datagram_bytes_out": counters.bytes_out,
        "datagrams_refused": counters.refused,
        "datagrams_unsent": counters.unsent,
    }


def direct_values(direct: "DirectLinks | None") -> Values:
    """Direct links to neighbours' agents."""
    if direct is None:
        return {}
    counters = direct.counters()
    return {
        "direct_frames_in": counters.frames_in,
        "direct_again": counters.by_broker,
        "direct_refused": counters.refused,
    }


def span_values(spans: "SpanReporter | None", *, waiting_max: int) -> Values:
    """OpenTelemetry traces."""
    if spans is None:
        return {}
    recorder, exporter = spans.recorder, spans.exporter
    return {
        "spans_share": recorder.places / PLACES,
        "spans_waiting": exporter.waiting,
        "spans_limit": waiting_max,
        "spans_exported": exporter.exported,
        "spans_failed": exporter.failed,
        "spans_dropped": exporter.dropped,
        "spans_passed_over": recorder.passed_over,
    }


def stream_values(stream: MetricsStream | None, *, bytes_max: int) -> Values:
    if stream is None:
        return {}
    return {
        "stream_bytes": stream.spool.bytes_held,
        "stream_limit": bytes_max,
        "stream_batches": stream.spool.written,
        "stream_dropped": stream.spool.dropped,
        "stream_lost": stream.records_lost,
        "stream_failures": stream.trouble.failures,
        "stream_answers": stream.replay.answered,
        "stream_refused": stream.replay.refused,
        "stream_malformed": stream.replay.malformed,
    }
