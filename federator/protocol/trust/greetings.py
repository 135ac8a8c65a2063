"""Signed words to whoever listens: a hello or a bye, with the passport and what a key needs.

Only these are signed one by one. A hello comes before there is a common key, and a bye may be a
Will that lies ready at a broker for months.

Source: docs/security.md, "Greetings".
"""

from typing import Annotated, Final, Literal

import msgspec

from federator.errors import DecodeError
from federator.protocol.messages import NEIGHBOURS_MAX
from federator.protocol.trust.primitives import SIGNATURE_BYTES
from federator.protocol.types import BROKER_ID_MAX, BrokerId

MARK: Final = b"S"
"""First byte on the wire. An open federation's messages begin with 0x90 or more."""

SALT_BYTES: Final = 16
PRESENCE_BYTES: Final = 8
GREETING_BYTES_MAX: Final = 131_072

_Id = Annotated[BrokerId, msgspec.Meta(ge=0, le=BROKER_ID_MAX)]


class Greeting(msgspec.Struct, frozen=True, array_like=True):
    """What is signed.

    Attributes:
        version: Of this format.
        certificate: The sender's, as the federation key signed it.
        salt: Drawn anew at each start of the sender; part of every key.
        counter: Grows with each greeting of one salt; 0 in a Will.
        to: Whom the sender believes at the other end; ``None`` while it does not know.
        holds: Which presence of each neighbour the sender has: keys that go with it it understands.
        kind: Topic of the message.
        body: The encoded message.
    """

    version: Literal[1]
    certificate: bytes
    salt: Annotated[bytes, msgspec.Meta(min_length=SALT_BYTES, max_length=SALT_BYTES)]
    counter: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    to: _Id | None
    holds: Annotated[dict[_Id, bytes], msgspec.Meta(max_length=NEIGHBOURS_MAX)]
    kind: str
    body: bytes


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Greeting)


def encode_greeting(greeting: Greeting) -> bytes:
    """What the sender signs."""
    return _encoder.encode(greeting)


def signed_text(federation: str, text: bytes) -> bytes:
    """What the signature is over."""
    return b"federator greeting 1\0" + federation.encode() + b"\0" + text


def pack(text: bytes, signature: bytes) -> bytes:
    """The wire form."""
    return MARK + signature + text


def unpack(payload: bytes) -> tuple[Greeting, bytes, bytes]:
    """The greeting, its encoding, and the signature, not looked at.

    Raises:
        DecodeError: It is none.
    """
    if len(payload) > GREETING_BYTES_MAX:
        raise DecodeError(f"greeting: {len(payload)} bytes, at most {GREETING_BYTES_MAX} wanted")
    signature, text = payload[1 : 1 + SIGNATURE_BYTES], payload[1 + SIGNATURE_BYTES :]
    try:
        return _decoder.decode(text), text, signature
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"greeting: {error}") from error
