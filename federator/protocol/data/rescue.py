"""Ordinary routes to the destinations that a planned tree does not reach.

Source: docs/protocol.md 18.
"""

from dataclasses import replace

from federator.protocol.duplicates import DuplicateLog
from federator.protocol.forwarding.forwarding import Forwarder, FrameRoute, Sends
from federator.protocol.forwarding.frames import Frame, keys_in, mask_bytes
from federator.protocol.forwarding.trees import TreeTable
from federator.protocol.messages.destinations import destinations_in, is_tree_key, positions_of
from federator.protocol.types import BrokerId


def rescued(
    frame: Frame, route: FrameRoute, seen: DuplicateLog, forwarder: Forwarder, self_id: BrokerId
) -> FrameRoute:
    """``route`` of ``frame``, with ordinary routes where its tree does not reach.

    No copy was responsible for these destinations, unless another broker sent one already, which
    ``seen`` records. The route may lead back to the sender: the sender took on the tree only.
    """
    origin = frame.origin
    _, left = seen.admit(
        origin, frame.epoch, frame.seq, k=frame.k, mask=route.rescue, sender=frame.sender
    )
    around = forwarder.route_frame(frame.keys, left, sender=self_id, origin=origin)
    return replace(route, sends=_joined(route.sends, around.sends, frame.k))


def returned(frame: Frame, mask: int, trees: TreeTable) -> int:
    """The part of ``mask`` that our own ``frame``, which came back, must still be sent on for.

    A broker that does not know the tree sends to all destinations the ordinary way, also to those
    to which we sent it the ordinary way at first.
    """
    for key in keys_in(frame.keys):
        branch = trees.branch(key) if is_tree_key(key) else None
        if branch is not None:
            left = destinations_in(frame.keys).difference(*branch.below.values())
            mask &= ~positions_of(left, frame.keys)
    return mask


def _joined(one: Sends, other: Sends, k: int) -> Sends:
    """Both, with one copy for each next hop."""
    masks: dict[BrokerId, int] = {}
    for hop, mask in (*one, *other):
        masks[hop] = masks.get(hop, 0) | int.from_bytes(mask, "little")
    return tuple((hop, mask_bytes(masks[hop], k)) for hop in sorted(masks))
