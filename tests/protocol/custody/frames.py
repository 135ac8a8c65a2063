"""Frames as a receiver gets them."""

from federator.protocol.custody.chains import NOBODY, Chained, Placed
from federator.protocol.forwarding.frames import CUSTODY_FLAG
from federator.protocol.types import BrokerId
from tests.protocol.frames import made_frame


def placed(
    origin: BrokerId,
    epoch: int,
    seq: int,
    links: dict[bytes, int],
    *,
    made_us: int,
    by: BrokerId = NOBODY,
    body: bytes = b"x",
) -> Placed:
    """A frame, brought ``by`` a neighbour, with what it says of the chains of ``links``."""
    keys, numbers = b"".join(links), {"epoch": epoch, "seq": seq, "origin_time_us": made_us}
    came = made_frame(origin=origin, sender=by, flags=CUSTODY_FLAG, keys=keys, body=body, **numbers)
    return Placed(came, tuple(Chained(key, number) for key, number in links.items()))


def tail(
    origin: BrokerId, epoch: int, heads: dict[bytes, int], *, made_us: int, by: BrokerId = NOBODY
) -> Placed:
    """What an origin repeats of its chains."""
    return placed(
        origin, epoch=1, seq=1, links=heads, made_us=made_us, by=by, body=epoch.to_bytes(8, "big")
    )
