"""Forwarded signatures: of cores on announcements, brokers on addresses, origins on frames.

A relay announces the cost of its path, sealed by itself. That the core lives, its number, its
priority and the digest of its filters are signed by the core, whichever relay sends them. So only
broker 0 can be core 0, and no other broker can raise its number.

A neighbour with a certificate can forge the filters behind a digest, so an address among the
filters needs a signature of its own: an attacker that could change it could make every agent
connect, with its password, to a place of the attacker's choice.

Source: docs/security.md, "Announcements" and "Addresses"; docs/protocol.md 16.
"""

import struct
from typing import Final

import msgspec

from federator.errors import DecodeError
from federator.protocol.messages.control import PROOF_BYTES_MAX, CoreAnn
from federator.protocol.messages.fields import decoded
from federator.protocol.trust.authority import Authority, DistrustError, ForgedError
from federator.protocol.trust.certificates import Signature
from federator.protocol.trust.primitives import Identity, Verifier
from federator.protocol.types import BrokerId, Epoch

PROVEN_MAX: Final = 8_192

_FACTS = struct.Struct(">IiQQQQ?")
_WHOSE = struct.Struct(">IQ")


class Proof(msgspec.Struct, frozen=True, array_like=True):
    """A certificate, and a signature by its holder."""

    certificate: bytes
    signature: Signature


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Proof)


def prove(text: bytes, certificate: bytes, identity: Identity) -> bytes:
    """The wire form of our signature on ``text``, with our certificate."""
    return _encoder.encode(Proof(certificate, identity.sign(text)))


def decode_proof(data: bytes) -> Proof:
    """Decode a proof.

    Raises:
        DecodeError: ``data`` is no proof.
    """
    proof = decoded(_decoder, "proof", data, PROOF_BYTES_MAX)
    if _encoder.encode(proof) != data:
        raise DecodeError("proof: it has more than a certificate and a signature")
    return proof


def facts_of(federation: str, ann: CoreAnn) -> bytes:
    """The part of an announcement that its core signs: all that relays forward unchanged."""
    facts = _FACTS.pack(
        ann.core, ann.priority, ann.epoch, ann.seq, ann.digest, ann.count, ann.gave_up
    )
    return b"federator core 1\0" + federation.encode() + b"\0" + facts


def address_text(federation: str, id: BrokerId, epoch: Epoch, address: str) -> bytes:
    """The bytes that a broker signs to prove its address."""
    whose = _WHOSE.pack(id, epoch)
    return b"federator address 1\0" + federation.encode() + b"\0" + whose + address.encode()


def presence_text(federation: str, about: bytes) -> bytes:
    """The bytes that an agent signs to prove that it is the agent of its own broker."""
    return b"federator presence 1\0" + federation.encode() + b"\0" + about


class ProofJudge:
    """Verifies signatures on announcements, addresses and frames.

    Copies arrive over every link, and are verified once.
    """

    def __init__(self, federation: str, authority: Authority, verify: Verifier) -> None:
        self._federation = federation
        self._authority = authority
        self._verify = verify
        self._proven: dict[bytes, bytes] = {}  # the proof, by signed text and signature

    def check_announcement(self, ann: CoreAnn, *, now_s: int) -> None:
        """Accept an announcement that its core signed.

        Raises:
            DecodeError: The core did not sign it, or the certificate is another broker's.
        """
        facts = facts_of(self._federation, ann)
        self._check(f"an announcement of core {ann.core}", ann.core, facts, ann.proof, now_s)

    def check_address(
        self, id: BrokerId, epoch: Epoch, address: str, proof: bytes, *, now_s: int
    ) -> None:
        """Accept an address that its broker signed.

        Raises:
            DecodeError: The broker did not sign it.
        """
        try:
            text = address_text(self._federation, id, epoch, address)
        except UnicodeError as error:
            raise DecodeError(f"address: {error}") from error
        self._check(f"an address of broker {id}", id, text, proof, now_s)

    def check_frame(self, origin: BrokerId, text: bytes, proof: bytes, *, now_s: int) -> None:
        """Accept the part of a frame that its origin signed.

        Raises:
            DecodeError: The origin did not sign it.
        """
        self._check(f"a frame of {origin}", origin, text, proof, now_s)

    def _check(self, what: str, id: BrokerId, text: bytes, data: bytes, now_s: int) -> None:
        if not data:
            raise DistrustError(f"{what} without its signature")
        proof = decode_proof(data)
        certificate = self._authority.judge(proof.certificate, now_s=now_s)
        if certificate.id != id:
            raise DistrustError(f"{what} signed by broker {certificate.id}")
        key = text + proof.signature
        if self._proven.get(key) == data:
            return
        if not self._verify(certificate.signing_key, proof.signature, text):
            raise ForgedError(f"the signature on {what} is wrong")
        if len(self._proven) >= PROVEN_MAX:
            self._proven.clear()
        self._proven[key] = data
