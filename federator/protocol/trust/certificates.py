"""Certificates that the federation key issued, and the list of those it revoked.

Both are sent and stored as the bytes that were signed, with the signature beside them: they are
never encoded again, so nothing depends on two encoders agreeing.

Source: docs/security.md, "Keys".
"""

from hashlib import blake2b
from typing import Annotated, Final, Literal

import msgspec

from federator.protocol.messages.fields import Id, decoded
from federator.protocol.trust.primitives import (
    EXCHANGE_KEY_BYTES,
    SIGNATURE_BYTES,
    SIGNING_KEY_BYTES,
)

SIGNED_BYTES_MAX: Final = 65_536
REVOKED_MAX: Final = 4_000
SERIAL_BYTES: Final = 8

_Federation = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
_Seconds = Annotated[int, msgspec.Meta(ge=0, lt=2**40)]
_Serial = Annotated[bytes, msgspec.Meta(min_length=SERIAL_BYTES, max_length=SERIAL_BYTES)]
_SigningKey = Annotated[
    bytes, msgspec.Meta(min_length=SIGNING_KEY_BYTES, max_length=SIGNING_KEY_BYTES)
]
Signature = Annotated[bytes, msgspec.Meta(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)]

Role = Literal["agent", "gateway", "operator", "collector", "steerer"]
"""The role in which a holder may send. A reader of the metrics stream asks as a collector."""


class Certificate(msgspec.Struct, frozen=True, array_like=True):
    """The federation's certificate for one agent, or one holder of another role."""

    # 1 for agents; 2 for other roles: releases without roles do not take these for agents.
    version: Literal[1, 2]
    federation: _Federation  # where it is valid
    id: Id  # the broker of the agent; 0 for another role
    signing_key: _SigningKey  # the public key for signatures, Ed25519
    # The public key for key agreement, X25519.
    exchange_key: Annotated[
        bytes, msgspec.Meta(min_length=EXCHANGE_KEY_BYTES, max_length=EXCHANGE_KEY_BYTES)
    ]
    not_before_s: _Seconds  # Unix time from which it is valid,
    expires_s: _Seconds  # and until which
    serial: _Serial  # by which it can be revoked
    role: Role = "agent"  # the role of its holder
    name: Annotated[str, msgspec.Meta(max_length=64)] = ""  # the holder's name, if it is no agent

    @property
    def holder_name(self) -> str:
        """The name of the holder, within its role."""
        return str(self.id) if self.role == "agent" else self.name

    @property
    def holder(self) -> str:
        """Role and name of the holder, for humans."""
        return f"{'broker' if self.role == 'agent' else self.role} {self.holder_name}"


class Revocations(msgspec.Struct, frozen=True, array_like=True):
    """Serials that are no longer valid; a list with a higher number replaces the one before."""

    version: Literal[1]
    federation: _Federation
    number: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
    serials: Annotated[frozenset[_Serial], msgspec.Meta(max_length=REVOKED_MAX)]


class Signed(msgspec.Struct, frozen=True, array_like=True):
    """What a federation key signed: the encoded ``Certificate`` or ``Revocations``."""

    issuer: _SigningKey  # the federation key, public
    text: Annotated[bytes, msgspec.Meta(max_length=SIGNED_BYTES_MAX)]
    signature: Signature  # over ``signed_text`` of ``text``


_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")
_certificate: Final = msgspec.msgpack.Decoder(Certificate)
_revocations: Final = msgspec.msgpack.Decoder(Revocations)
_signed: Final = msgspec.msgpack.Decoder(Signed)


def encode(value: msgspec.Struct) -> bytes:
    """The wire form of ``value``."""
    return _encoder.encode(value)


def signed_text(kind: type[msgspec.Struct], text: bytes) -> bytes:
    """The bytes that a federation key signs; ``kind`` prevents confusing the two."""
    return b"federator " + kind.__name__.lower().encode() + b" 1\0" + text


def decode_signed(data: bytes) -> Signed:
    """Decode without verifying the signature.

    Raises:
        DecodeError: ``data`` is malformed. The same holds for the two functions below.
    """
    return decoded(_signed, "signed", data, SIGNED_BYTES_MAX)


def decode_certificate(text: bytes) -> Certificate:
    """The certificate in the text of a ``Signed``."""
    return decoded(_certificate, "certificate", text, SIGNED_BYTES_MAX)


def decode_revocations(text: bytes) -> Revocations:
    """The list of serials in the text of a ``Signed``."""
    return decoded(_revocations, "revocations", text, SIGNED_BYTES_MAX)


def fingerprint(key: bytes) -> str:
    """A short name of ``key``, by which humans tell keys apart."""
    return blake2b(key, digest_size=8).hexdigest()
