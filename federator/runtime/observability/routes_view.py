"""Where publications go from our broker, and why: the routes, as pages show them."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from federator.protocol.forwarding.explanation import explain
from federator.protocol.forwarding.forwarding import Forwarder
from federator.protocol.node import Node
from federator.protocol.parameters import Strategy
from federator.protocol.policy.broker_policy import BrokerPolicy
from federator.protocol.policy.link_policies import LinkPolicies
from federator.protocol.routing_table import table_of
from federator.runtime.sharing.sharing import Sharing

EXPLAINED_MAX = 100
"""Filters of one topic, and ways of each."""

LISTED_MAX = 1_000
"""Meshes and routes in one answer; totals are given beside."""

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
            noun = "neighbour" if len(stopped) == 1 else "neighbours"
            why += f"; the rules of {noun} {', '.join(map(str, stopped))} stop it there"
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
