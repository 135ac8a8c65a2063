"""Certificates: what the federation key says of its parts, and the list of those it revoked.

Both travel and are stored as bytes that were signed, with the signature beside them: what was
signed is never encoded again, so nothing depends on two encoders agreeing.

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
"""Whose words somebody may say. Whoever reads the metrics stream asks as a collector."""


class Certificate(msgspec.Struct, frozen=True, array_like=True):
    """The federation's word for one agent, or one holder of another role."""

    # 1 for agents; 2 for others, which releases without roles do not take for agents.
    version: Literal[1, 2]
    federation: _Federation  # where it holds
    id: Id  # the broker whose agent this is; 0 where it is another role's
    signing_key: _SigningKey  # the public key for signatures, Ed25519
    # The public key for key agreement, X25519.
    exchange_key: Annotated[
        bytes, msgspec.Meta(min_length=EXCHANGE_KEY_BYTES, max_length=EXCHANGE_KEY_BYTES)
    ]
    not_before_s: _Seconds  # Unix time from which it holds,
    expires_s: _Seconds  # and until which
    serial: _Serial  # by which it can be revoked
    role: Role = "agent"  # what its holder is
    name: Annotated[str, msgspec.Meta(max_length=64)] = ""  # who that is, where it is no agent

    @property
    def holder_name(self) -> str:
        """Whose it is, within its role."""
        return str(self.id) if self.role == "agent" else self.name

    @property
    def holder(self) -> str:
        """Whose it is, for people."""
        return f"{'broker' if self.role == 'agent' else self.role} {self.holder_name}"


class Revocations(msgspec.Struct, frozen=True, array_like=True):
    """Serials that hold no more; a list with a higher number replaces the one before."""

    version: Literal[1]
    federation: _Federation
    number: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
    serials: Annotated[frozenset[_Serial], msgspec.Meta(max_length=REVOKED_MAX)]


class Signed(msgspec.Struct, frozen=True, array_like=True):
    """What a federation key signed: the encoded ``Certificate`` or ``Revocations``."""

    issuer: _SigningKey  # the federation key, public
    text: Annotated[bytes, msgspec.Meta(max_length=SIGNED_BYTES_MAX)]
    signature: Signature  # over ``signed_text`` of it


_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")
_certificate: Final = msgspec.msgpack.Decoder(Certificate)
_revocations: Final = msgspec.msgpack.Decoder(Revocations)
_signed: Final = msgspec.msgpack.Decoder(Signed)


def encode(value: msgspec.Struct) -> bytes:
    """The wire form of ``value``."""
    return _encoder.encode(value)


def signed_text(kind: type[msgspec.Struct], text: bytes) -> bytes:
    """What a federation key signs; the kind keeps one from being taken for the other."""
    return b"federator " + kind.__name__.lower().encode() + b" 1\0" + text


def decode_signed(data: bytes) -> Signed:
    """What was signed, its signature not looked at.

    Raises:
        DecodeError: ``data`` is nothing of the kind. So do the two below.
    """
    return decoded(_signed, "signed", data, SIGNED_BYTES_MAX)


def decode_certificate(text: bytes) -> Certificate:
    """The certificate in the text of a ``Signed``."""
    return decoded(_certificate, "certificate", text, SIGNED_BYTES_MAX)


def decode_revocations(text: bytes) -> Revocations:
    """The list of serials in the text of a ``Signed``."""
    return decoded(_revocations, "revocations", text, SIGNED_BYTES_MAX)


def fingerprint(key: bytes) -> str:
    """A short name of ``key``, by which people tell keys apart."""
    return blake2b(key, digest_size=8).hexdigest()
