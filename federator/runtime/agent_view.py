"""What an agent tells when asked: readiness, state, routes and counters, read at that moment."""

from collections.abc import Callable, Iterable
from itertools import islice

from prometheus_client.core import Metric

from federator.protocol.parameters import Strategy
from federator.protocol.routing_table import table_of
from federator.protocol.types import BrokerId, Millis
from federator.runtime.agent import Agent
from federator.runtime.agent_metrics import AgentMetrics
from federator.runtime.clocks import monotonic_ms
from federator.runtime.custody import counts
from federator.runtime.failover_view import controller_page
from federator.runtime.topology_view import topology_page

LISTED_MAX = 1_000
"""Meshes, routes and links in one answer; totals are given beside."""

Answer = dict[str, object]


class LiveView:
    """The ``AgentView`` of a running agent.

    Args:
        agent: Whom to look at.

    Attributes:
        http_refused: How many HTTP connections were refused; set by whoever listens.
    """

    def __init__(self, agent: Agent) -> None:
        self.http_refused: Callable[[], int] = lambda: 0
        self._agent = agent
        self._metrics = AgentMetrics(agent)

    async def measure_lag(self, interval_s: float) -> None:
        """Keep noting how late the event loop runs a timer."""
        await self._metrics.measure_lag(interval_s)

    def ready(self) -> tuple[bool, str]:
        """Whether publications flow, and otherwise why not."""
        agent = self._agent
        if agent.presence.taken_over:
            place, id_ = agent.settings.broker.reached_at, agent.settings.broker.id
            return False, f"broker {place}: session taken over (0x8e): another agent has id {id_}"
        for link in (agent.control_link, agent.data_link):
            if not link.connected:
                place = agent.settings.broker.reached_at
                return False, f"broker {place}: {link.last_error or 'not connected yet'}"
        if not agent.presence.up:
            return False, "subscribing on our broker"
        if agent.node.id_conflict_until_ms is not None:
            return False, f"id {agent.settings.broker.id} is used by another agent too"
        for neighbour in agent.neighbours.all:
            if neighbour.dialled_for is None and not neighbour.tried:
                return False, f"neighbour {neighbour.address}: not tried yet"
        return True, "ready"

    def status(self) -> Answer:
        """The whole state."""
        agent = self._agent
        ready, reason = self.ready()
        routes = sorted(agent.node.announcements.routes.items())
        states = agent.node.meshes.states
        local_link = agent.control_link
        return {
            "id": agent.settings.broker.id,
            "epoch": agent.epoch,
            "federation": agent.settings.federation,
            "ready": ready,
            "ready_reason": reason,
            "broker": {
                "url": agent.settings.broker.url,
                "connected": local_link.connected,
                "error": local_link.last_error,
                "version": agent.discovery.broker_version,
            },
            "security": self._security(),
            "links": self._links(),
            "datagrams": agent.datagrams.totals() if agent.datagrams is not None else None,
            "own_core": {
                "seq": agent.node.announcements.own.seq,
                "filters": len(agent.node.announcements.own.filters),
                "priority": agent.node.announcements.own.priority,
            },
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
            "meshes": [self._mesh(f) for f in sorted(islice(states, LISTED_MAX))],
            "meshes_total": len(states),
            "destinations": [
                row
                for f in sorted(islice(agent.node.topic_routing.states, LISTED_MAX))
                for row in self._ways(f)
                if row["strategy"] == Strategy.SHORTEST_PATH
            ][:LISTED_MAX],
            "destinations_total": sum(
                len(s.brokers) for s in agent.node.topic_routing.states.values()
            ),
            "discovery": agent.discovery.snapshot(),
            "rules": self._rules(),
            "retained": self._retained(),
            "loops": self._loops(),
            "share": {"scope": agent.settings.share.scope, **agent.sharing.snapshot()},
            "settling": {
                "settled": agent.settling.settling.settled,
                "gave_up": agent.settling.settling.gave_up,
                "malformed": agent.settling.malformed,
            },
            "tracing": {"malformed": agent.tracing.malformed},
            "custody": counts(agent.data_path.custody, agent.data_path.custody_log),
            "counters": self._counters(),
        }

    def explain(self, topic: str) -> Answer:
        """Where a publication on our broker's ``topic`` would go, and why."""
        agent = self._agent
        name = agent.border.renames.outward(topic)
        explanation = agent.forwarder.explain(topic if name is None else name)
        why = agent.border.why_not(topic) or explanation.why
        hops = explanation.next_hops if agent.border.why_not(topic) is None else ()
        stopped = [h for h in hops if not agent.gates.rules_of(h).lets_out(explanation.topic)]
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
                    **self._mesh(m.filter),
                    "wanted": m.route.wanted,
                    "why": m.why,
                    "ways": self._ways(m.filter)[:LISTED_MAX],
                }
                for m in explanation.filters
            ],
            "groups": self._agent.sharing.explain(topic),
        }

    def routes(self) -> Iterable[Answer]:
        """The routing table: per filter and core or destination, the path, its weight, a backup."""
        node = self._agent.node
        filters = {
            *islice(node.meshes.states, LISTED_MAX),
            *islice(node.topic_routing.states, LISTED_MAX),
        }
        return [row for f in sorted(filters) for row in self._ways(f)][:LISTED_MAX]

    def controller(self) -> Answer:
        """Who steps in for whom, and why."""
        return controller_page(self._agent.node.failover, self._agent.settings.broker_id)

    def topology(self) -> Answer:
        """The whole graph, as brokers tell of their links."""
        topology = self._agent.settings.topology
        return topology_page(self._agent.node, mode=topology.mode, wanted=topology.neighbours)

    def metrics(self) -> Iterable[Metric]:
        """Counters and gauges, read now."""
        self._metrics.http_refused = self.http_refused()
        return self._metrics.read(ready=self.ready()[0])

    # -- parts ------------------------------------------------------------------------------------

    def _security(self) -> Answer:
        trust = self._agent.trust
        snapshot = trust.snapshot() if trust is not None else {}
        return {"mode": self._agent.settings.security, **snapshot}

    def _links(self) -> list[Answer]:
        agent = self._agent
        now_ms = monotonic_ms()
        known = agent.node.links
        told: list[Answer] = []
        for neighbour in agent.neighbours.all:
            connection = known.connections.get(neighbour.conn) if neighbour.conn else None
            found = connection.neighbour if connection is not None else None
            neighbour_id = found if found is not None else neighbour.expected_id
            told.append(
                {
                    "neighbour": neighbour_id,
                    "address": neighbour.address,
                    "dialled_back": neighbour.dialled_for is not None,
                    "cost": neighbour.cost if connection is None else connection.cost,
                    "connected": neighbour.connected,
                    **self._heard(neighbour_id, now_ms),
                }
            )
            if agent.datagrams is not None:
                told[-1]["datagrams"] = agent.datagrams.snapshot(neighbour_id)
            if not neighbour.connected:
                told[-1]["state"] = "connecting"
                told[-1]["reason"] = neighbour.last_error or "connecting"
        return told[:LISTED_MAX]

    def _heard(self, neighbour_id: BrokerId | None, now_ms: Millis) -> Answer:
        known = None
        if neighbour_id is not None:
            known = self._agent.node.links.neighbours.get(neighbour_id)
        if known is None:
            return {"state": "down", "reason": "its agent is not heard", "rtt_ms": None}
        return {
            "state": "up" if known.up else "down",
            "reason": known.reason,
            "rtt_ms": known.round_trip_ms,
            "heard_ms_ago": now_ms - known.heard_at_ms,
        }

    def _ways(self, filter_: str) -> list[Answer]:
        return [
            {
                "filter": row.filter,
                "strategy": row.strategy.value,
                "to": row.to,
                "next_hop": None if row.way is None else row.way.next_hop,
                "path/topic": None if row.way is None else row.way.text(filter_),
                "weight": None if row.way is None else row.way.weight,
                "backup": None if row.backup is None else row.backup.text(filter_),
                "backup_weight": None if row.backup is None else row.backup.weight,
            }
            for row in table_of(self._agent.node, filter_)
        ]

    def _mesh(self, filter_: str) -> Answer:
        meshes = self._agent.node.meshes
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

    def _rules(self) -> Answer:
        border, gates = self._agent.border, self._agent.gates
        rules, wanted, renaming = border.edge, self._agent.discovery.wanted, self._agent.renaming
        told = {
            "import": rules.imports,
            "export": rules.exports,
            "keep": rules.keep,
            "deny": border.denied.filters,
            "rename": tuple(f"{here} -> {there}" for here, there in border.renames.pairs),
        }
        return {
            **{name: list(filters[:LISTED_MAX]) for name, filters in told.items()},
            "keep_total": len(rules.keep),
            "not_imported": sum(not border.asked_for(filter_) for filter_ in wanted),
            "withheld_from_neighbours": gates.withheld_out,
            "withheld_of_neighbours": gates.withheld_in,
            "without_name_there": renaming.kept if renaming else 0,
            "without_name_here": renaming.hidden if renaming else 0,
        }

    def _loops(self) -> Answer:
        watch = self._agent.loops
        loops = watch.detector.loops
        return {
            "watching": watch.watching,
            "bridges": watch.named_bridges(),
            "suspects": watch.detector.suspects,
            "broken": dict(islice(loops.items(), LISTED_MAX)),
            "broken_total": watch.detector.loop_count,
            "dropped": watch.detector.dropped,
        }

    def _retained(self) -> Answer | None:
        retained = self._agent.retained
        if retained is None:
            return None
        store, counters = retained.store, retained.counters
        return {
            "topics": len(store) - store.tombstones,
            "tombstones": store.tombstones,
            "refused": store.refused,
            "looks": retained.looks.count,
            "looks_incomplete": retained.looks.incomplete,
            **{name: getattr(counters, name) for name in counters.__slots__},
        }

    def _counters(self) -> Answer:
        traffic = self._agent.traffic
        data = self._agent.data_path.counters
        return {
            "control_sent": dict(traffic.sent),
            "control_sent_bytes": dict(traffic.sent_bytes),
            "control_received": dict(traffic.received),
            "control_malformed": dict(traffic.malformed),
            "control_dropped": dict(traffic.dropped),
            "data": {name: getattr(data, name) for name in data.__slots__},
            "copies_dropped": self._agent.cover.duplicates_dropped,
        }
