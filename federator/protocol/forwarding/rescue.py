"""The ordinary way on for what a planned tree does not reach.

Source: docs/protocol.md 18.
"""

from dataclasses import replace

from federator.protocol.duplicates import DuplicateLog
from federator.protocol.forwarding.forwarding import Forwarder, FrameRoute, Sends
from federator.protocol.forwarding.frames import Frame, mask_bytes
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


def _joined(one: Sends, other: Sends, k: int) -> Sends:
    """Both, in one copy for each next hop."""
    masks: dict[BrokerId, int] = {}
    for hop, mask in (*one, *other):
        masks[hop] = masks.get(hop, 0) | int.from_bytes(mask, "little")
    return tuple((hop, mask_bytes(masks[hop], k)) for hop in sorted(masks))
