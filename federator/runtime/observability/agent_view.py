"""The content of an agent's pages: readiness, state, routes and counters, read at that moment.

Each section is read from its own parts; ``runtime.agent.app`` supplies them.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING

from federator.protocol.forwarding.explanation import explain
from federator.protocol.forwarding.forwarding import Forwarder
from federator.protocol.links.standing import LinkJudge
from federator.protocol.node import Node
from federator.protocol.parameters import Strategy
from federator.protocol.policy.broker_policy import BrokerPolicy
from federator.protocol.policy.link_policies import LinkPolicies
from federator.protocol.retained.places import Places
from federator.protocol.routing_table import table_of
from federator.protocol.steering.flow_meter import FlowMeter
from federator.protocol.types import BrokerId
from federator.runtime.data.cover_subscriber import CoverSubscriber
from federator.runtime.data.data_path import DataPath
from federator.runtime.data.renaming import Renaming
from federator.runtime.links.control_traffic import ControlTraffic
from federator.runtime.links.neighbour_links import NeighbourLink, NeighbourLinks
from federator.runtime.loops.watch import LoopWatch
from federator.runtime.observability.agent_metrics import LinkMetrics, Values
from federator.runtime.observability.metrics import AGENT, LINK
from federator.runtime.observability.readiness import way_of
from federator.runtime.process.clocks import monotonic_ms, until_beat_s
from federator.runtime.process.exposition import Family, Labelled, families
from federator.runtime.retained.retained import Retained
from federator.runtime.sharing.sharing import Sharing
from federator.runtime.steering.link_loads import LinkLoads

if TYPE_CHECKING:
    from federator.runtime.datagrams.service import DatagramService
    from federator.runtime.direct.service import DirectLinks

LAGS_KEPT = 60
"""The worst of the latest probes of the event loop counts: scrapes are rarer than probes."""

EXPLAINED_MAX = 100
"""Filters of one topic, and ways of each."""

NO_PREFIX = '""'
"""How an empty prefix is shown."""

LISTED_MAX = 1_000
"""Meshes, routes and links in one answer; totals are given beside."""

Answer = dict[str, object]


@dataclass(frozen=True, slots=True)
class RoutesView:
    """Where publications go, and why."""

    node: Node
    policy: BrokerPolicy
    link_policies: LinkPolicies
    forwarder: Forwarder
    sharing: Sharing

    def status(self) -> Answer:
        """Cores, meshes, and destinations over the shortest path."""
        node = self.node
        routes = sorted(node.announcements.routes.items())
        own, states = node.announcements.own, node.meshes.states
        straight = node.topic_routing.states
        return {
            "own_core": {"seq": own.seq, "filters": len(own.filters), "priority": own.priority},
            "cores": [
                {
                    "core": core,
                    "priority": route.priority,
                    "epoch": route.number[0],
                    "seq": route.number[1],
                    "cost": route.cost if route.reachable else None,
                    "parents": list(route.parents),
                    "filters": len(route.announced.filters),
                    "in_mesh": route.in_mesh,
                }
                for core, route in islice(routes, LISTED_MAX)
                if not route.forgotten and len(route.announced.filters)
            ],
            "meshes": [self.mesh(f) for f in sorted(islice(states, LISTED_MAX))],
            "meshes_total": len(states),
            "destinations": self._rows(islice(straight, LISTED_MAX), Strategy.SHORTEST_PATH),
            "destinations_total": sum(len(s.brokers) for s in straight.values()),
        }

    def explain(self, topic: str) -> Answer:
        """Where a publication on our broker's ``topic`` would go, and why."""
        name = self.policy.renames.outward(topic)
        explanation = explain(self.forwarder, topic if name is None else name)
        kept = self.policy.why_not(topic)
        why = kept or explanation.why
        hops = explanation.next_hops if kept is None else ()
        rules_of = self.link_policies.rules_of
        stopped = [h for h in hops if not rules_of(h).allows_export(explanation.topic)]
        if stopped:
            word = "neighbour" if len(stopped) == 1 else "neighbours"
            why += f"; the rules of {word} {', '.join(map(str, stopped))} stop it there"
        return {
            "topic": topic,
            "name_in_federation": name,
            "next_hops": [hop for hop in hops if hop not in stopped],
            "stopped_by_rules": stopped,
            "why": why,
            "filters": [
                {
                    **self.mesh(m.filter),
                    "wanted": m.route.wanted,
                    "why": m.why,
                    "ways": list(islice(self._ways(m.filter), EXPLAINED_MAX)),
                }
                for m in explanation.filters[:EXPLAINED_MAX]
            ],
            "groups": self.sharing.explain(topic),
        }

    def routes(self) -> Iterable[Answer]:
        """The routing table: per filter and core or destination, the path, its weight, a backup."""
        meshes, straight = self.node.meshes.states, self.node.topic_routing.states
        filters = {*islice(meshes, LISTED_MAX), *islice(straight, LISTED_MAX)}
        return self._rows(filters)

    def _rows(self, filters: Iterable[str], only: Strategy | None = None) -> list[Answer]:
        rows = (row for f in sorted(filters) for row in self._ways(f))
        selected = (row for row in rows if only is None or row["strategy"] == only)
        return list(islice(selected, LISTED_MAX))

    def _ways(self, filter_: str) -> Iterable[Answer]:
        return (
            {
                "filter": row.filter,
                "strategy": row.strategy.value,
                "to": row.to,
                "next_hop": row.way and row.way.next_hop,
                "path/topic": row.way and row.way.text(filter_),
                "weight": row.way and row.way.weight,
                "backup": row.backup and row.backup.text(filter_),
                "backup_weight": row.backup and row.backup.weight,
            }
            for row in table_of(self.node, filter_)
        )

    def mesh(self, filter_: str) -> Answer:
        """Our part in the mesh of ``filter_``, by its name in the federation."""
        meshes = self.node.meshes
        state = meshes.states.get(filter_)
        if state is None:
            return {"filter": filter_, "core": None}
        core = state.core
        return {
            "filter": filter_,
            "core": core,
            "local": state.local,
            "member": state.local or bool(state.child_cores),
            "parents": list(meshes.parents_of(core)) if core is not None else [],
            "children": meshes.children_of(core, filter_) if core is not None else [],
            "next_hops": list(state.route.next_hops),
            "handing_over_from": state.previous,
        }


@dataclass(kw_only=True, eq=False, repr=False)
class LiveView:
    """The ``AgentView`` of a running agent."""

    ready: Callable[[], tuple[bool, str]]  # whether publications flow, and otherwise why not
    status: Callable[[], Answer]
    explain: Callable[[str], Answer]
    routes: Callable[[], Iterable[Answer]]
    controller: Callable[[], Answer]
    topology: Callable[[], Answer]
    values: Callable[[], Values]  # by the attributes that the table of metrics names
    links: LinkMetrics
    tls: Labelled  # expiry of the certificates that we present, by file

    def __post_init__(self) -> None:
        self.http_refused: Callable[[], int] = lambda: 0  # set by the HTTP server
        self._lags_s: deque[float] = deque([0.0], maxlen=LAGS_KEPT)

    async def measure_lag(self, interval_s: float) -> None:
        """Keep measuring how late the event loop runs a timer."""
        loop = asyncio.get_running_loop()
        while True:
            rest_s = until_beat_s(interval_s)
            due_s = loop.time() + rest_s
            await asyncio.sleep(rest_s)
            self._lags_s.append(max(0.0, loop.time() - due_s))

    def metrics(self) -> Iterable[Family]:
        values: Values = {
            **self.values(),
            "loop_lag_s": max(self._lags_s),
            "http_refused": self.http_refused(),
            "tls_expiry": self.tls,
        }
        return chain(families(AGENT, values), families(LINK, self.links.read()))


# The sections of ``/status``


def names_section(node: Node) -> dict[str, str]:
    """The names of all brokers that have one, by id."""
    return {str(id): name for id, name in node.failover.names().items()}


def links_section(
    judge: LinkJudge,
    neighbours: NeighbourLinks,
    datagrams: "DatagramService | None",
    direct: "DirectLinks | None",
    loads: LinkLoads,
    name_of: Callable[[BrokerId], str],
) -> list[Answer]:
    """The connections to neighbours, and what hinders a link over each."""
    links, now_ms = judge.links, monotonic_ms()
    section: list[Answer] = []
    for neighbour in neighbours.all[:LISTED_MAX]:
        connection = links.connections.get(neighbour.conn) if neighbour.conn else None
        verdict = judge.find(way_of(neighbour, joined=True), now_ms=now_ms)
        state = links.neighbours.get(verdict.neighbour) if verdict.neighbour is not None else None
        rate, capacity = loads.rate(verdict.neighbour), loads.capacity(verdict.neighbour)
        section.append(
            {
                "neighbour": verdict.neighbour,
                "name": "" if verdict.neighbour is None else name_of(verdict.neighbour),
                "address": neighbour.address,
                "dialled_back": neighbour.dialled_for is not None,
                "dialled": _dialled(neighbour),
                "cost": neighbour.cost if connection is None else connection.cost,
                "connected": neighbour.connected,
                "state": _state(neighbour, up=verdict.up),
                "reason": verdict.reason,
                "refuses": verdict.refuses,
                "rtt_ms": state and state.round_trip_ms,
                "rate": None if rate is None else round(rate),
                "capacity": None if capacity is None else round(capacity),
                "load": None if rate is None or not capacity else round(rate / capacity, 4),
            }
        )
        if state is not None:
            section[-1]["heard_ms_ago"] = now_ms - state.heard_at_ms
        if datagrams is not None:
            section[-1]["datagrams"] = datagrams.snapshot(verdict.neighbour)
        if direct is not None:
            section[-1]["direct"] = direct.snapshot(verdict.neighbour)
    return section


def flows_section(meter: FlowMeter, forwarder: Forwarder) -> Answer:
    """The heaviest flows of our clients, in bit/s, and all others together."""
    flows, rest = meter.told(forwarder)
    return {
        "heaviest": [
            {
                "filters": list(flow.filters),
                "destinations": list(flow.destinations),
                "meshed": flow.meshed,
                "planned": flow.planned,
                "rate": round(flow.rate),
                "error": round(flow.error),
                "publications": round(flow.publications, 2),
            }
            for flow in flows
        ],
        "rest": round(rest),
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


def rules_section(
    policy: BrokerPolicy,
    link_policies: LinkPolicies,
    renaming: Renaming | None,
) -> Answer:
    """The rules at the edge of our broker and on links, and what they withheld."""
    rules = policy.edge
    filters_by_rule = {
        "import": rules.imports,
        "export": rules.exports,
        "keep": rules.keep,
        "deny": policy.denied.filters,
        "rename": tuple(
            f"{here or NO_PREFIX} -> {there or NO_PREFIX}" for here, there in policy.renames.pairs
        ),
    }
    return {
        **{name: list(filters[:LISTED_MAX]) for name, filters in filters_by_rule.items()},
        "keep_total": len(rules.keep),
        "not_imported": policy.not_imported,
        "withheld_from_neighbours": link_policies.withheld_out,
        "withheld_of_neighbours": link_policies.withheld_in,
        "without_name_there": renaming.kept if renaming else 0,
        "without_name_here": renaming.hidden if renaming else 0,
    }


def loops_section(watch: LoopWatch) -> Answer:
    """Bridges at our broker, and the loops that they make."""
    loops = watch.detector.loops
    return {
        "watching": watch.watching,
        "bridges": watch.named_bridges(),
        "suspects": watch.detector.suspects,
        "broken": dict(islice(loops.items(), LISTED_MAX)),
        "broken_total": watch.detector.loop_count,
        "dropped": watch.detector.dropped,
    }


def retained_section(retained: Retained | None) -> Answer | None:
    """The state of retained values; ``None`` if the feature is off."""
    if retained is None:
        return None
    store, counters = retained.store, retained.counters
    return {
        "topics": len(store) - store.tombstones,
        "tombstones": store.tombstones,
        "topics_max": retained.settings.topics_max,
        "guests": store.places.guests,
        "refused": store.places.refused,
        "full": _full(store.places),
        "looks": retained.scanner.count,
        "looks_incomplete": retained.scanner.incomplete,
        **{name: getattr(counters, name) for name in counters.__slots__},
    }


def _full(places: Places) -> Answer | None:
    if not places.crowded:
        return None
    return dict(zip(("origin", "topics", "below"), places.culprit(), strict=True))


def counters_section(
    traffic: ControlTraffic, data_path: DataPath, cover: CoverSubscriber
) -> Answer:
    """Messages and publications since the start."""
    data = data_path.counters
    return {
        "control_sent": dict(traffic.sent),
        "control_sent_bytes": dict(traffic.sent_bytes),
        "control_received": dict(traffic.received),
        "control_malformed": dict(traffic.malformed),
        "control_dropped": dict(traffic.dropped),
        "control_refused": dict(traffic.refused),
        "data": {name: getattr(data, name) for name in data.__slots__},
        "copies_dropped": cover.duplicates_dropped,
    }
