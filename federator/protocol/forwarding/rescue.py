"""The ordinary way on for what a planned tree does not reach.

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
    """``route`` of ``frame``, and besides the ordinary ways to those whom its tree does not reach.

    No copy was responsible for them, unless somebody else rescued them already, which ``seen``
    knows. The way may lead back to the sender: that one took on the tree only.
    """
    origin = frame.origin
    _, left = seen.admit(
        origin, frame.epoch, frame.seq, k=frame.k, mask=route.rescue, sender=frame.sender
    )
    around = forwarder.route_frame(frame.keys, left, sender=self_id, origin=origin)
    return replace(route, sends=_joined(route.sends, around.sends, frame.k))


def returned(frame: Frame, mask: int, trees: TreeTable) -> int:
    """What of ``mask`` our own ``frame``, which came back, still has to be sent on for.

    Who rescues what a tree that he does not know should have reached rescues everybody, also those
    to whom we sent it the ordinary way at first.
    """
    for key in keys_in(frame.keys):
        branch = trees.branch(key) if is_tree_key(key) else None
        if branch is not None:
            left = destinations_in(frame.keys).difference(*branch.below.values())
            mask &= ~positions_of(left, frame.keys)
    return mask


def _joined(one: Sends, other: Sends, k: int) -> Sends:
    """Both, in one copy for each next hop."""
    masks: dict[BrokerId, int] = {}
    for hop, mask in (*one, *other):
        masks[hop] = masks.get(hop, 0) | int.from_bytes(mask, "little")
    return tuple((hop, mask_bytes(masks[hop], k)) for hop in sorted(masks))
