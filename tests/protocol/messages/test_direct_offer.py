"""What agents say of their ports for neighbours' agents, old and new ones to each other."""

from typing import Annotated

import msgspec

from federator.protocol.messages.codec import decode, encode
from federator.protocol.messages.control import TOKEN_BYTES, DirectOffer
from federator.protocol.types import BrokerId, Epoch

TOKEN = bytes(range(TOKEN_BYTES))


class OldOffer(msgspec.Struct, frozen=True, array_like=True, tag=51):
    """As agents of 5cf35157 have it."""

    sender: int
    epoch: int
    address: str
    token: Annotated[bytes, msgspec.Meta(min_length=TOKEN_BYTES, max_length=TOKEN_BYTES)]


def test_an_older_agent_reads_a_new_offer():
    said = encode(DirectOffer(BrokerId(1), Epoch(2), "host:1", TOKEN, places=True))
    assert msgspec.msgpack.decode(said, type=OldOffer) == OldOffer(1, 2, "host:1", TOKEN)


def test_an_older_offer_promises_no_places():
    said = msgspec.msgpack.encode(OldOffer(1, 2, "host:1", TOKEN))
    read = decode("ctl", said)
    assert read == DirectOffer(BrokerId(1), Epoch(2), "host:1", TOKEN, places=False)
