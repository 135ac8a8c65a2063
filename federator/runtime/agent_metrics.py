"""Reads the values of an agent's metrics, at the moment of a scrape."""

import asyncio
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from itertools import chain

from prometheus_client.core import Metric

from federator.config.certificates import expiries_s
from federator.protocol.types import BrokerId
from federator.runtime.agent import Agent
from federator.runtime.custody import counts
from federator.runtime.data_counters import DELAY_BOUNDS_US
from federator.runtime.exposition import Distribution, Labelled, Value, families
from federator.runtime.metrics import AGENT, LINK
from federator.runtime.neighbour_links import NeighbourLink
from federator.runtime.topology_view import links_told, mutual_links

LAGS_KEPT = 60
"""Of the latest probes of the event loop the worst counts: scrapes are rarer than probes."""

_Number = int | float


class AgentMetrics:
    """The metrics of one agent.

    Args:
        agent: At whom to look.

    Attributes:
        http_refused: HTTP connections refused; set by whoever is told.
    """

    def __init__(self, agent: Agent) -> None:
        self.http_refused = 0
        self._agent = agent
        self._lags_s: deque[float] = deque([0.0], maxlen=LAGS_KEPT)
        self._ids: dict[str, BrokerId] = {}  # who was last behind an address
        holders = agent.settings.credential_holders()
        ends_s = expiries_s(credentials.cert_file for _, credentials in holders)
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
        values: dict[str, Value] = {
            "ready": int(ready),
            **self._about(),
            **self._state(),
            **self._traffic(),
            **self._control(),
            **self._features(),
            **self._failover(),
            "tls_expiry": self._tls,
            **self._topology(),
            **self._trust(),
            **self._datagrams(),
            **self._stream(),
        }
        return chain(families(AGENT, values), families(LINK, self._links()))

    # -- parts ------------------------------------------------------------------------------------

    def _about(self) -> dict[str, Value]:
        settings = self._agent.settings
        strategy = settings.routing.strategy
        who = (settings.federation, str(settings.broker_id), settings.security, strategy)
        return {"about": {who: 1}}

    def _state(self) -> dict[str, Value]:
        agent = self._agent
        node, settings = agent.node, agent.settings
        meshes, straight = node.meshes.states.values(), node.topic_routing.states.values()
        links = [link for n in agent.neighbours.all for link in n.links]
        local = (agent.control_link, agent.data_link)
        return {
            "broker_connected": int(agent.presence.up),
            "epoch": agent.epoch,
            "neighbours": len(agent.neighbours.all),
            "neighbours_up": len(node.links.up),
            "cores": len(node.announcements.routes),
            "filters": len(meshes) + len(straight),
            "filters_limit": settings.mesh.filters_max,
            "local_filters": sum(s.local for s in meshes) + sum(s.local for s in straight),
            "destinations": sum(len(s.brokers) for s in straight),
            "widened": int(agent.discovery.widened),
            "topic_cache_size": agent.forwarder.topics_cached,
            "origins": agent.data_path.origins,
            "send_queue_bytes": sum(link.queued_bytes for link in (*links, *local)),
            "send_queue_limit": settings.links.send_queue_bytes_max,
            "reconnects": sum(max(0, link.counters.connects - 1) for link in (*links, *local)),
            "loop_lag_s": max(self._lags_s),
            "bridges": len(agent.loops.bridges),
            "bridge_loops": agent.loops.detector.loop_count,
            "http_refused": self.http_refused,
        }

    def _traffic(self) -> dict[str, Value]:
        agent, data = self._agent, self._agent.data_path.counters
        discovery, delays = agent.discovery.snapshot(), agent.data_path.delays
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
            "copies_dropped": agent.cover.duplicates_dropped,
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
            "client_drops": discovery["broker_drops"],
            "rules_withheld": agent.gates.withheld_in + agent.gates.withheld_out,
            "bridge_loop_drops": agent.loops.detector.dropped,
            "log_lines": discovery["lines"],
            "log_lines_ambiguous": discovery["ambiguous"],
            "log_lines_malformed": discovery["unreadable"],
            "delay": Distribution(bounds_s, delays.counts, delays.sum_us / 1_000_000),
        }

    def _control(self) -> dict[str, Value]:
        traffic, trust = self._agent.traffic, self._agent.trust
        refused: Counter[str] = Counter() if trust is None else trust.refused
        return {
            "control_in": _by_kind(traffic.received),
            "control_out": _by_kind(traffic.sent),
            "control_bytes_out": _by_kind(traffic.sent_bytes),
            "control_malformed": _by_kind(traffic.malformed),
            "control_dropped": _by_kind(traffic.dropped),
            "trust_refused": _by_kind(refused),
        }

    def _features(self) -> dict[str, Value]:
        """Custody, shared groups, retained values."""
        agent = self._agent
        custody = counts(agent.data_path.custody, agent.data_path.custody_log)
        values: dict[str, Value] = {
            "custody_log_limit": agent.settings.custody.bytes_max,
            **{f"custody_{name}": count for name, count in custody.items()},
            **{f"share_{name}": count for name, count in agent.sharing.counts().items()},
        }
        retained = agent.retained
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

    def _failover(self) -> dict[str, Value]:
        agent, failover = self._agent, self._agent.node.failover
        if not failover.active:
            return {}
        us, takeovers = agent.settings.broker_id, failover.office.takeovers
        draining = failover.self_state.draining
        states = Counter(known.state for _, known in failover.presence)
        states["draining" if draining else "up"] += 1
        return {
            "controller": failover.controller,
            "in_office": int(failover.holds_office),
            "draining": int(draining),
            "takeovers": len(takeovers),
            "stood_in": sum(made.substitute == us for made in takeovers.values()),
            "flow_rows": len(failover.table),
            "sessions_waiting": len(agent.prepared.waiting),
            "local_clients": agent.failover.clients,
            "brokers": {(state,): states[state] for state in ("up", "draining", "gone")},
            "sessions_prepared": agent.prepared.prepared,
            "sessions_refused": agent.prepared.refused,
        }

    def _topology(self) -> dict[str, Value]:
        node, wanted = self._agent.node, self._agent.settings.topology.neighbours
        if not node.neighbourhood.active:
            return {}
        told = links_told(node)
        return {
            "topology_brokers": len(told),
            "topology_links": sum(1 for _ in mutual_links(told)),
            "topology_wanted": wanted,
            "topology_given_up": node.neighbourhood.changes,
        }

    def _trust(self) -> dict[str, Value]:
        trust = self._agent.trust
        if trust is None:
            return {}
        guard = trust.guard
        return {
            "certificate_expiry": guard.ours.certificate.expires_s,
            "trusted_keys": len(guard.authority.trusted),
        }

    def _datagrams(self) -> dict[str, Value]:
        desk = self._agent.datagrams
        if desk is None:
            return {}
        return {
            "datagrams_out": desk.counters.datagrams_out,
            "datagrams_in": desk.counters.datagrams_in,
            "datagram_bytes_out": desk.counters.bytes_out,
            "datagrams_refused": desk.counters.refused,
            "datagrams_unsent": desk.counters.unsent,
        }

    def _stream(self) -> dict[str, Value]:
        stream = self._agent.metrics
        if stream is None:
            return {}
        return {
            "stream_bytes": stream.spool.bytes_held,
            "stream_limit": self._agent.settings.metrics.spool_bytes_max,
            "stream_batches": stream.spool.written,
            "stream_dropped": stream.spool.dropped,
            "stream_lost": stream.records_lost,
            "stream_failures": stream.failures,
            "stream_answers": stream.replay.answered,
            "stream_refused": stream.replay.refused,
            "stream_malformed": stream.replay.malformed,
        }

    # -- links ------------------------------------------------------------------------------------

    def _links(self) -> Mapping[str, Labelled]:
        """Values by attribute and neighbour; a neighbour that is down keeps its row."""
        values: dict[str, dict[tuple[str, ...], _Number]] = {row.attribute: {} for row in LINK}
        for neighbour in self._agent.neighbours.all:
            id_ = self._id_behind(neighbour)
            if id_ is not None:
                for attribute, value in self._link(neighbour, id_).items():
                    values[attribute][(str(id_),)] = value
        addresses = {neighbour.address for neighbour in self._agent.neighbours.all}
        self._ids = {address: id_ for address, id_ in self._ids.items() if address in addresses}
        return values

    def _id_behind(self, neighbour: NeighbourLink) -> BrokerId | None:
        connections = self._agent.node.links.connections
        connection = connections.get(neighbour.conn) if neighbour.conn is not None else None
        if connection is not None and connection.neighbour is not None:
            self._ids[neighbour.address] = connection.neighbour
        expected = neighbour.expected_id if neighbour.expected_id else neighbour.dialled_for
        return self._ids.get(neighbour.address, expected)

    def _link(self, neighbour: NeighbourLink, id_: BrokerId) -> dict[str, _Number]:
        links = self._agent.node.links
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
        desk = self._agent.datagrams
        link = desk.links().get(id_) if desk is not None else None
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


def _by_kind(counter: Counter[str]) -> Labelled:
    return {(kind,): count for kind, count in counter.items()}
