"""What a hub reports of its leaves and of its traffic for them: ``/status`` and ``/metrics``.

Ports are reported as sums, and single leaves only where an alarm needs them: there may be 256, and
a scrape is a turn of the loop.

Source: docs/hubs.md; docs/observability.md.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from federator.protocol.leaves.arrivals import Arrivals
from federator.protocol.types import BrokerId
from federator.runtime.leaves.role import BrokerAgent
from federator.runtime.observability.agent_metrics import Values
from federator.runtime.observability.agent_view import Answer

if TYPE_CHECKING:
    from federator.runtime.leaves.hub import Hub


def hub_section(hub: "Hub | None") -> Answer | None:
    """What the mesh is asked for, and what it and the leaves sent; ``None`` without leaves."""
    if hub is None:
        return None
    return {
        "filters_asked": len(hub.asked),
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
        "filters_told": len(hub.switch.leaves[id]),
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


LEAF_KEYS = ("up", "filters_wanted", "filters_told", "bytes_out", "bytes_in", "queued", "dropped")


def hub_values(hub: "Hub | None") -> Values:
    """The metrics of a hub; none without leaves."""
    if hub is None:
        return {}
    leaves, sides = leaves_section(hub), _sides(hub)
    paths = [port.path for port in hub.ports.values()]
    planes = [path.counters for path in paths]
    custody = [path.custody for path in paths]
    stores = [path.stores for path in paths]
    values: Values = {
        "leaves": len(leaves),
        "mesh_asked": len(hub.asked),
        "brought": {(s,): sum(a.publications for a in sides[s]) for s in sides},
        "brought_bytes": {(s,): sum(a.size for a in sides[s]) for s in sides},
        "in_vain": {(s,): sum(a.in_vain for a in sides[s]) for s in sides},
        "in_vain_bytes": {(s,): sum(a.size_in_vain for a in sides[s]) for s in sides},
        "leaves_taken": sum(plane.publications_in for plane in planes),
        "leaves_frames_out": sum(plane.frames_out for plane in planes),
        "leaves_frames_in": sum(plane.frames_in for plane in planes),
        "leaves_deferred": sum(plane.deferred for plane in planes),
        "leaves_log_bytes": sum(part.log.bytes for part in stores),
        "leaves_log_overflowed": sum(part.log.dropped_for_room for part in stores),
        "leaves_log_failures": sum(part.failures for part in stores),
        "leaves_owed": sum(len(part.owed) for part in custody),
        "leaves_gaps": sum(part.destination.receiver.gaps for part in custody),
        "leaves_gone": sum(part.destination.receiver.voids for part in custody),
    }
    return values | {f"leaf_{key}": {(str(t["id"]),): t[key] for t in leaves} for key in LEAF_KEYS}
