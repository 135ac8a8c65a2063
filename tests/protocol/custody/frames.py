"""Frames as a receiver gets them."""

from federator.protocol.custody.chains import NOBODY, Chained, Placed
from federator.protocol.forwarding.frames import CUSTODY_FLAG, Frame
from federator.protocol.types import BrokerId, Epoch


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
    frame = Frame(
        flags=CUSTODY_FLAG,
        hops=0,
        hop_limit=9,
        sender=by,
        origin=origin,
        epoch=Epoch(epoch),
        seq=seq,
        origin_time_us=made_us,
        publications=1,
        keys=b"".join(links),
        mask=1,
        body=memoryview(body),
    )
    return Placed(frame, tuple(Chained(key, number) for key, number in links.items()))


def tail(
    origin: BrokerId, epoch: int, heads: dict[bytes, int], *, made_us: int, by: BrokerId = NOBODY
) -> Placed:
    """What an origin repeats of its chains."""
    return placed(
        origin, epoch=1, seq=1, links=heads, made_us=made_us, by=by, body=epoch.to_bytes(8, "big")
    )
