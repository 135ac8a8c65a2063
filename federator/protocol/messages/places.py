"""What a broker says of its place in the federation, as a filter that no client can subscribe.

Places are announced as the records of the session flow table are: everybody holds everybody's,
losses are made good, and when a broker goes out of reach its record goes.

The address is signed by its origin in a signed federation: announcements pass through many hands,
and whoever could change an address could call all agents, with their passwords, to a place of its
choice.

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
    epoch: EpochField  # the epoch of its agent when it said so
    # Neighbours with which it has a live link, ascending.
    links: Annotated[tuple[Id, ...], msgspec.Meta(max_length=LINKS_MAX)] = ()
    # Round trip to the farthest neighbour that it may exchange for a nearer one, rounded up to a
    # power of two; 0: it exchanges none.
    reach_ms: Annotated[int, msgspec.Meta(ge=0, le=2**31)] = 0
    # Its signature over address and epoch; empty in an open federation.
    proof: Annotated[bytes, msgspec.Meta(max_length=PROOF_BYTES_MAX)] = b""


class AddressVerifier(Protocol):
    """Vouches for our own address, and judges others'."""

    def sign(self, address: str, epoch: Epoch) -> bytes:
        """The proof for our place."""

    def objection(self, id: BrokerId, place: Place) -> str:
        """Why ``place`` is not that of ``id``, or nobody may connect there; empty when all is well.

        Never raises.
        """


class Trusting:
    """The verifier of an open federation, which believes everything."""

    def sign(self, address: str, epoch: Epoch) -> bytes:
        """The empty proof."""
        return b""

    def objection(self, id: BrokerId, place: Place) -> str:
        """No objection, whatever the place."""
        return ""


_decoder: Final = msgspec.json.Decoder(Place)
_encoder: Final = msgspec.json.Encoder()


def encode_place(place: Place) -> str:
    """The filter that says ``place``."""
    return PREFIX + _encoder.encode(place).decode()


def parse_place(filter: str) -> Place | None:
    """The place that ``filter`` is, if it is one and well made."""
    if not filter.startswith(PREFIX) or len(filter) > RECORD_BYTES_MAX:
        return None
    try:
        return _decoder.decode(filter[len(PREFIX) :])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
