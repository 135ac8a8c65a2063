"""Signatures that travel: of cores on announcements, of brokers on addresses, of origins on frames.

A relay says what the way costs; that word is the relay's, sealed by it. That the core lives, its
number, its priority and the digest of its filters are the core's word, whoever brings it. So
nobody but broker 0 can be core 0, and nobody can raise another's number.

The digests of filter lists can be forged by a neighbour with a certificate, so an address among the
filters needs a signature of its own: whoever could change it could call every agent, with its
password, to a place of his choice.

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
    """A certificate, and the signature of its holder."""

    certificate: bytes
    signature: Signature


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Proof)


def prove(text: bytes, certificate: bytes, identity: Identity) -> bytes:
    """The wire form of our proof that we say ``text``."""
    return _encoder.encode(Proof(certificate, identity.sign(text)))


def decode_proof(data: bytes) -> Proof:
    """What travelled as a proof.

    Raises:
        DecodeError: ``data`` is no proof.
    """
    proof = decoded(_decoder, "proof", data, PROOF_BYTES_MAX)
    if _encoder.encode(proof) != data:
        raise DecodeError("proof: it has more than a certificate and a signature")
    return proof


def facts_of(federation: str, ann: CoreAnn) -> bytes:
    """What a core signs of its announcement: all that relays pass on unchanged."""
    facts = _FACTS.pack(
        ann.core, ann.priority, ann.epoch, ann.seq, ann.digest, ann.count, ann.gave_up
    )
    return b"federator core 1\0" + federation.encode() + b"\0" + facts


def address_text(federation: str, id: BrokerId, epoch: Epoch, address: str) -> bytes:
    """What a broker signs of its address."""
    whose = _WHOSE.pack(id, epoch)
    return b"federator address 1\0" + federation.encode() + b"\0" + whose + address.encode()


def presence_text(federation: str, about: bytes) -> bytes:
    """What an agent signs to show that it is the one at its own broker."""
    return b"federator presence 1\0" + federation.encode() + b"\0" + about


class ProofJudge:
    """Judges signatures on announcements, addresses and frames.

    Copies of one come over every link, and are judged once.
    """

    def __init__(self, federation: str, authority: Authority, verify: Verifier) -> None:
        self._federation = federation
        self._authority = authority
        self._verify = verify
        self._proven: dict[bytes, bytes] = {}  # the proof, by what was signed and the signature

    def check_announcement(self, ann: CoreAnn, *, now_s: int) -> None:
        """Accept an announcement that its core signed.

        Raises:
            DecodeError: The core did not sign it, or is not who it says.
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
        """Accept what its origin signed of a frame.

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
        told = text + proof.signature
        if self._proven.get(told) == data:
            return
        if not self._verify(certificate.signing_key, proof.signature, text):
            raise ForgedError(f"the signature on {what} is wrong")
        if len(self._proven) >= PROVEN_MAX:
            self._proven.clear()
        self._proven[told] = data
