"""What a hub reports of its leaves and of its traffic for them: ``/status`` and ``/metrics``.

Ports are reported as sums, and single leaves only where an alarm needs them: there may be 256, and
a scrape is a turn of the loop.

Source: docs/hubs.md; docs/observability.md.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from federator.protocol.leaves.arrivals import Arrivals
from federator.protocol.types import BrokerId
from federator.runtime.custody.stores import counts
from federator.runtime.leaves.role import BrokerAgent

if TYPE_CHECKING:
    from federator.runtime.leaves.hub import Hub

Section = dict[str, Any]


def hub_section(hub: "Hub | None") -> Section | None:
    """What the mesh is asked for, and what it and the leaves sent; ``None`` without leaves."""
    if hub is None:
        return None
    return {
        "filters_asked": len(hub.asked_mesh),
        **{
            side: {
                "publications": sum(source.publications for source in sources),
                "bytes": sum(source.size for source in sources),
                "in_vain": sum(source.in_vain for source in sources),
                "bytes_in_vain": sum(source.size_in_vain for source in sources),
            }
            for side, sources in _sides(hub).items()
        },
    }


def leaves_section(hub: "Hub | None") -> list[dict[str, int]]:
    """Each leaf: whether its link is up, its filters, and its traffic."""
    return [] if hub is None else [_leaf(hub, id, port) for id, port in sorted(hub.ports.items())]


def _leaf(hub: "Hub", id: BrokerId, port: BrokerAgent) -> dict[str, int]:
    counters, links = port.path.counters, port.connections.all
    return {
        "id": id,
        "up": bool(port.node.links.up),
        "served_by": hub.served_by(id),
        "filters_wanted": hub.wanted[id],
        "filters_told": hub.switch.leaves.count_advertised_to(id),
        "bytes_out": counters.frame_bytes_out,
        "bytes_in": counters.frame_bytes_in,
        "bytes_in_vain": hub.arrivals[id].size_in_vain,
        "queued": sum(link.queued_bytes for neighbour in links for link in neighbour.links),
        "dropped": counters.dropped,
        **_refused(port),
    }


def _refused(port: BrokerAgent) -> dict[str, int]:
    """Messages and frames that a leaf sent and we refused since we started.

    They are malformed or not authentic, beyond the leaf's bound of filters, or against its link
    rules.
    """
    node, traffic, frames = port.node, port.traffic, port.path.counters
    messages = [traffic.presumed, traffic.malformed]
    return {
        "frames_refused": frames.frames_of_strangers + frames.malformed_frames,
        "words_refused": sum(sum(counts.values()) for counts in messages) + port.words_refused,
        "filters_refused": node.meshes.refused + node.topic_routing.refused,
        "publications_refused": port.link_policies.withheld_in,
    }


def _sides(hub: "Hub") -> dict[str, Sequence[Arrivals]]:
    leaves = [arrivals for side, arrivals in hub.arrivals.items() if side is not None]
    return {"mesh": [hub.arrivals[None]], "leaves": leaves}


def ports_section(hub: "Hub | None") -> Section | None:
    """Sums over the ports."""
    if hub is None:
        return None
    sums = Counter[str]({"leaves": len(hub.ports)})
    for port in hub.ports.values():
        path = port.path
        sums.update(to_builtins(path.counters) | counts(path.custody, path.stores))
    return dict(sums)
