"""What a broker announces of its place in the federation, as a filter that no client can subscribe.

Places are announced like the records of the session flow table: every agent holds all of them,
losses are repaired, and when a broker goes out of reach its record goes.

In a signed federation the origin signs its address: announcements pass through many agents, and any
that could change an address could make all agents connect, with their passwords, to an address of
its choice.

Source: docs/protocol.md 16; docs/security.md, "Addresses".
"""

from typing import Annotated, Final, Protocol

import msgspec

from federator.protocol.messages.fields import EpochField, Id
from federator.protocol.types import BrokerId, Epoch

PREFIX: Final = "$fed/topology/place/"
RECORD_BYTES_MAX: Final = 65_535
LINKS_MAX: Final = 1_024
ADDRESS_CHARACTERS_MAX: Final = 512
PROOF_BYTES_MAX: Final = 4_096


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Where the announcing broker is."""

    # Where other agents reach it.
    address: Annotated[str, msgspec.Meta(min_length=1, max_length=ADDRESS_CHARACTERS_MAX)]
    epoch: EpochField  # the epoch of its agent when it announced this
    # Neighbours with which it has a live link, ascending.
    links: Annotated[tuple[Id, ...], msgspec.Meta(max_length=LINKS_MAX)] = ()
    # Round trip to the farthest neighbour that it may replace by a nearer one, rounded up to a
    # power of two; 0: it replaces none.
    reach_ms: Annotated[int, msgspec.Meta(ge=0, le=2**31)] = 0
    # Its signature over address and epoch; empty in an open federation.
    proof: Annotated[bytes, msgspec.Meta(max_length=PROOF_BYTES_MAX)] = b""


class AddressVerifier(Protocol):
    """Signs our own address, and checks those of others."""

    def sign(self, address: str, epoch: Epoch) -> bytes:
        """The proof for our place."""

    def objection(self, id: BrokerId, place: Place) -> str:
        """Why ``place`` is not that of ``id``, or must not be connected to; empty when it is valid.

        It never raises.
        """


class Trusting:
    """The verifier of an open federation, which accepts every address."""

    def sign(self, address: str, epoch: Epoch) -> bytes:
        return b""

    def objection(self, id: BrokerId, place: Place) -> str:
        return ""


_decoder: Final = msgspec.json.Decoder(Place)
_encoder: Final = msgspec.json.Encoder()


def encode_place(place: Place) -> str:
    """``place`` as a filter."""
    return PREFIX + _encoder.encode(place).decode()


def parse_place(filter: str) -> Place | None:
    """The place in ``filter``; ``None`` when it is no well-formed place."""
    if not filter.startswith(PREFIX) or len(filter) > RECORD_BYTES_MAX:
        return None
    try:
        return _decoder.decode(filter[len(PREFIX) :])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
