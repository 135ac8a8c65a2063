"""What a hostile client may publish on control topics: every message, and its mutations."""

from federator.protocol.filters import digest_of
from federator.protocol.messages.control import (
    Bye,
    CoreAnn,
    FilterListPage,
    FilterListRequest,
    HeardNeighbour,
    Hello,
    ListKind,
    MeshMembAnn,
    Solicit,
)

NEIGHBOUR, OURS, OTHER, UNLINKED = 1, 2, 3, 77
"""A line of brokers, of which ours is annoyed, and somebody who is none."""


def samples(sender):
    """One of each message, as ``sender`` might say it."""
    epoch = 1_000 + sender
    some = ("plant/+/temp", "x/#")
    return [
        Hello(1, sender, epoch, 1, 5, f"b{sender}", (HeardNeighbour(OURS, 1_002, 1, 0, 0, 1),)),
        Bye(sender, epoch, 1),
        CoreAnn(sender, OTHER, 0, 1_003, 9, 1, True, some, (), digest_of(some), 2),
        CoreAnn(sender, sender, 0, epoch, 9, 0, True, some, ("y",), 7, 2),
        MeshMembAnn(sender, OURS, 1_002, 1, some, (), digest_of(some), 2),
        FilterListRequest(sender, ListKind.CORE, OURS),
        FilterListRequest(sender, ListKind.CORE, OTHER),
        FilterListRequest(sender, ListKind.MEMBERSHIP, NEIGHBOUR),
        FilterListPage(sender, ListKind.CORE, OTHER, 1_003, digest_of(some), 0, 1, some),
        FilterListPage(sender, ListKind.MEMBERSHIP, OURS, 1_002, digest_of(some), 0, 1, some),
        Solicit(sender, OTHER, 1_003, 2**40, 3),
    ]


def mutated(rng, payload):
    """``payload`` with bytes changed, cut out, repeated or put in."""
    data = bytearray(payload)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0:
                data[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del data[at : at + rng.randint(1, 8)]
            case 2:
                data[at:at] = rng.choice((b"\xcf" + b"\xff" * 8, b"\xff", b"\x00", b"\xc0", b"$"))
            case 3:
                data[at:at] = data[at : at + rng.randint(1, 16)]
            case _:
                del data[at:]
    return bytes(data)
