"""The graph of the federation as one agent knows it from announcements.

Brokers that arrange their links list them in their places, and all in failover in their records;
both are merged. A link counts when both its ends list it.
"""

from collections.abc import Iterable, Mapping

from federator.protocol.node import Node
from federator.protocol.types import BrokerId

BROKERS_LISTED_MAX = 4_096

Answer = dict[str, object]


def topology_page(node: Node, *, mode: str, wanted: int) -> Answer:
    """Everything ``federator topology --what-if`` needs."""
    manager = node.topology
    links, names = links_told(node), node.failover.names()
    address = {id: peer.record.address for id, peer in node.failover.presence if peer.present}
    address |= {id: place.address for id, place in manager.directory.present()}
    address[node.links.self_id] = node.links.address
    missed = [id for id, member in manager.directory if member.place is None]
    return {
        "broker": node.links.self_id,
        "mode": mode,
        "neighbours_wanted": wanted if manager.active else None,
        "beside": sorted(manager.beside()) if manager.active else [],
        "given_up": manager.changes,
        "brokers": [
            {
                "broker": id,
                "name": names.get(id, ""),
                "address": address[id],
                "links": len(others),
            }
            for id, others in sorted(links.items())
        ][:BROKERS_LISTED_MAX],
        "missed": missed[:BROKERS_LISTED_MAX],
        "links": [list(link) for link in sorted(mutual_links(links))],
        "names": {str(id): name for id, name in names.items()},
    }


def links_told(node: Node) -> dict[BrokerId, frozenset[BrokerId]]:
    """The links that each broker lists, including ours."""
    links = {
        id: frozenset(member.record.links)
        for id, member in node.failover.presence
        if member.present
    }
    links |= {id: frozenset(place.links) for id, place in node.topology.directory.present()}
    links[node.links.self_id] = frozenset(node.links.up)
    return links


def mutual_links(
    neighbours: Mapping[BrokerId, frozenset[BrokerId]],
) -> Iterable[tuple[BrokerId, BrokerId]]:
    """The links that both ends list, each once, the smaller id first."""
    for a, others in neighbours.items():
        for b in others:
            if a < b and a in neighbours.get(b, ()):
                yield a, b
