"""The routing table of TBRG, read from a node: path/topic, weight, and a backup, for people.

In the paper every node has, per topic, the node to which data goes next, the path from there to the
consumer, and its length. Our nodes have the same by consumer: announcements carry their path. A
second path that does not lead back through us is the backup.

Source: Chen 2020, Tables 1 to 10.
"""

import msgspec

from federator.protocol.node import Node
from federator.protocol.parameters import Strategy
from federator.protocol.types import BrokerId, Cost


class Way(msgspec.Struct, frozen=True):
    """One way to a broker."""

    next_hop: BrokerId | None  # the first neighbour on it; ``None`` at the end itself
    # From the next hop to the end, both included; empty when unknown.
    path: tuple[BrokerId, ...]
    weight: Cost  # the cost of the whole path, from us

    def text(self, topic: str) -> str:
        """The way as the paper writes it: ``2-1/top``."""
        return f"{'-'.join(map(str, self.path)) or '?'}/{topic}"


class TableRow(msgspec.Struct, frozen=True):
    """Where publications that match ``filter`` go for one broker."""

    filter: str
    strategy: Strategy
    to: BrokerId  # a destination, or the core of the mesh
    way: Way | None  # the way there; ``None`` if there is none
    backup: Way | None  # the second best way, through another neighbour


def table_of(node: Node, filter: str) -> list[TableRow]:
    """The rows of ``filter``: one for the core of its mesh, one for each destination."""
    rows = []
    mesh = node.meshes.states.get(filter)
    if mesh is not None and mesh.core is not None:
        rows.append(_row(node, filter, Strategy.MESH, mesh.core))
    straight = node.topic_routing.states.get(filter)
    if straight is not None:
        ours = (node.links.self_id,) if straight.local else ()
        brokers = sorted({*straight.brokers, *ours})
        rows += [_row(node, filter, Strategy.SHORTEST_PATH, broker) for broker in brokers]
    return rows


def _row(node: Node, filter: str, strategy: Strategy, to: BrokerId) -> TableRow:
    links = node.links
    if to == links.self_id:
        return TableRow(filter, strategy, to, Way(None, (to,), Cost(0)), None)
    route = node.announcements.routes.get(to)
    if route is None:
        return TableRow(filter, strategy, to, None, None)

    def way(neighbour: BrokerId | None) -> Way | None:
        if neighbour is None or neighbour not in route.offers:
            return None
        cost = route.cost_via(neighbour, links.cost_to)
        return Way(neighbour, route.offers[neighbour].path, cost)

    first = way(route.parents[0]) if route.parents else None
    return TableRow(filter, strategy, to, first, way(route.backup(links.self_id, links.cost_to)))
