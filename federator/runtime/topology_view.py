"""What an agent tells of the whole graph: what brokers say of their links in the announcements.

Those that arrange their links themselves say so in their places, and all that take part in failover
in their records; both are merged. A link counts when both its ends tell of it.
"""

from collections.abc import Iterable

from federator.protocol.node import Node
from federator.protocol.types import BrokerId

BROKERS_LISTED_MAX = 4_096

Answer = dict[str, object]


def topology_page(node: Node, *, mode: str, wanted: int) -> Answer:
    """Everything ``federator topology --what-if`` needs.

    Args:
        node: Whom to ask.
        mode: How links come about here.
        wanted: Links that this broker wants, in mode auto.
    """
    self_id = node.links.self_id
    neighbourhood = node.neighbourhood
    directory = neighbourhood.directory
    told: dict[BrokerId, frozenset[BrokerId]] = {}
    address: dict[BrokerId, str] = {}
    for id, known in node.failover.presence:
        if known.present:
            told[id] = frozenset(known.record.links)
            address[id] = known.record.address
    for id, place in directory.present():
        told[id] = frozenset(place.links)
        address[id] = place.address
    told[self_id] = frozenset(node.links.up)
    address[self_id] = node.links.address
    missed = [id for id, member in directory if member.place is None]
    links = sorted(_links(told))
    return {
        "broker": self_id,
        "mode": mode,
        "neighbours_wanted": wanted if neighbourhood.active else None,
        "beside": sorted(neighbourhood.beside()) if neighbourhood.active else [],
        "given_up": neighbourhood.changes,
        "brokers": [
            {"broker": id, "address": address[id], "links": len(others)}
            for id, others in sorted(told.items())
        ][:BROKERS_LISTED_MAX],
        "missed": missed[:BROKERS_LISTED_MAX],
        "links": [list(link) for link in links],
    }


def _links(told: dict[BrokerId, frozenset[BrokerId]]) -> Iterable[tuple[BrokerId, BrokerId]]:
    """Each once, the smaller id first."""
    for a, others in told.items():
        for b in others:
            if a < b and a in told.get(b, ()):
                yield a, b
