"""Signed messages to any receiver: a hello or a bye, with what is needed to agree on a key.

Only these are signed one by one. A hello comes before there is a common key, and a bye may be a
Will that a broker stores for months.

Source: docs/security.md, "Greetings".
"""

from typing import Annotated, Final, Literal

import msgspec

from federator.protocol.messages.control import NEIGHBOURS_MAX
from federator.protocol.messages.fields import Id, decoded
from federator.protocol.trust.primitives import SIGNATURE_BYTES

MARK: Final = b"S"
"""First byte on the wire. An open federation's messages begin with 0x90 or more."""

SALT_BYTES: Final = 16
AGREEMENT_NAME_BYTES: Final = 8
GREETING_BYTES_MAX: Final = 131_072


class Greeting(msgspec.Struct, frozen=True, array_like=True):
    """The part of a hello or a bye that the sender signs."""

    version: Literal[1]  # the version of this format
    certificate: bytes  # the sender's, as signed by the federation key
    # Drawn anew at each start of the sender; part of every key.
    salt: Annotated[bytes, msgspec.Meta(min_length=SALT_BYTES, max_length=SALT_BYTES)]
    # Grows with each greeting of one salt; 0 in a Will.
    counter: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    to: Id | None  # the broker expected at the other end; ``None`` while unknown
    # For each neighbour, the name of the neighbour's half of the key agreement that the sender has:
    # it can open seals under keys derived from it.
    holds: Annotated[dict[Id, bytes], msgspec.Meta(max_length=NEIGHBOURS_MAX)]
    kind: str  # the topic of the message
    body: bytes  # the encoded message


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Greeting)


def encode_greeting(greeting: Greeting) -> bytes:
    """The encoding of ``greeting``, which is signed."""
    return _encoder.encode(greeting)


def signed_text(federation: str, text: bytes) -> bytes:
    """The bytes that the signature on a greeting with the encoding ``text`` covers."""
    return b"federator greeting 1\0" + federation.encode() + b"\0" + text


def pack(text: bytes, signature: bytes) -> bytes:
    """The wire form of a greeting with the encoding ``text``."""
    return MARK + signature + text


def unpack(payload: bytes) -> tuple[Greeting, bytes, bytes]:
    """The greeting, its encoding, and the signature, which is not verified here.

    Raises:
        DecodeError: The payload is no greeting.
    """
    signature, text = payload[1 : 1 + SIGNATURE_BYTES], payload[1 + SIGNATURE_BYTES :]
    return decoded(_decoder, "greeting", text, GREETING_BYTES_MAX), text, signature
