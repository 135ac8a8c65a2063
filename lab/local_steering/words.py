"""What an agent tells everybody: its links with their prices, and the trees of its own flows.

Like a notice at each end of a street: how full it is, and what a place in it costs. Words are
numbered, flooded, and expire.
"""

from typing import Annotated, Final

import msgspec

from federator.errors import DecodeError
from federator.protocol.messages.fields import EpochField, Id, Natural, decoded
from federator.protocol.messages.steering import BROKERS_MAX, Tree, parents_of
from federator.protocol.types import BrokerId

Ends = tuple[BrokerId, BrokerId]

LINKS_MAX: Final = 256
TREES_MAX: Final = 64
"""Trees of one agent's flows."""

WORD_BYTES_MAX: Final = 65_536
PRICE_MAX: Final = 64.0
AMOUNT_MAX: Final = 1e15

_Amount = Annotated[float, msgspec.Meta(ge=0, le=AMOUNT_MAX)]
_Edges = Annotated[tuple[tuple[Id, Id], ...], msgspec.Meta(max_length=BROKERS_MAX)]


class PricedLink(msgspec.Struct, frozen=True, array_like=True):
    """One direction of a link, as its tail tells of it."""

    neighbour: Id
    cost: Natural
    load: _Amount  # bit/s
    capacity: _Amount | None
    price: Annotated[float, msgspec.Meta(ge=0, le=PRICE_MAX)]  # makes it (1 + price) times as long


class Shift(msgspec.Struct, frozen=True, array_like=True):
    """A flow has just moved: tails count it at once, and do not wait until they measure it."""

    rate: _Amount
    left: _Edges
    joined: _Edges


class LinkPrices(msgspec.Struct, frozen=True, array_like=True):
    """The word of one agent. The newest of an agent replaces those before it."""

    broker: Id
    epoch: EpochField
    number: Natural
    links: Annotated[tuple[PricedLink, ...], msgspec.Meta(max_length=LINKS_MAX)]
    trees: Annotated[tuple[Tree, ...], msgspec.Meta(max_length=TREES_MAX)] = ()
    shift: Shift | None = None


_DECODER = msgspec.msgpack.Decoder(LinkPrices)


def encode(word: LinkPrices) -> bytes:
    """``word`` as bytes."""
    return msgspec.msgpack.encode(word)


def decode(payload: bytes) -> LinkPrices:
    """The word in ``payload``.

    Raises:
        DecodeError: It is malformed, has a tree that is none, or one of somebody else's flows.
    """
    word = decoded(_DECODER, "prices", payload, WORD_BYTES_MAX)
    for tree in word.trees:
        if tree.origin != word.broker:
            raise DecodeError(f"prices: a tree of {tree.origin} in the word of {word.broker}")
        try:
            parents_of(tree)
        except ValueError as error:
            raise DecodeError(f"prices: a tree of {word.broker}: {error}") from error
    return word
