"""A core's own signature on its announcement, which every relay passes on as it is.

A relay says what the way costs; that word is the relay's, sealed by it. That the core lives, its
number, its priority and the digest of its filters are the core's word, whoever brings it. So
nobody but broker 0 can be core 0, and nobody can raise another's number.

Source: docs/security.md, "Announcements"; design section 3.2.
"""

import struct
from typing import Annotated, Final

import msgspec

from federator.errors import DecodeError
from federator.protocol.messages import PROOF_BYTES_MAX, CoreAnn
from federator.protocol.trust.authority import Authority, DistrustError
from federator.protocol.trust.certificates import Certificate
from federator.protocol.trust.primitives import SIGNATURE_BYTES, Identity, Verifier

PROVEN_MAX: Final = 8_192

_FACTS = struct.Struct(">IiQQQQ?")


class Proof(msgspec.Struct, frozen=True, array_like=True):
    """The core's certificate and its signature over ``facts_of`` the announcement."""

    certificate: bytes
    signature: Annotated[
        bytes, msgspec.Meta(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)
    ]


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Proof)


def facts_of(federation: str, ann: CoreAnn) -> bytes:
    """What the core signs: all that relays pass on unchanged."""
    facts = _FACTS.pack(
        ann.core, ann.priority, ann.epoch, ann.seq, ann.digest, ann.count, ann.gave_up
    )
    return b"federator core 1\0" + federation.encode() + b"\0" + facts


def prove(ann: CoreAnn, federation: str, certificate: bytes, identity: Identity) -> CoreAnn:
    """``ann`` of ours with our proof."""
    signature = identity.sign(facts_of(federation, ann))
    return msgspec.structs.replace(ann, proof=encode_proof(Proof(certificate, signature)))


class ProofReader:
    """Judges proofs; copies of one announcement come over every link and are judged once."""

    def __init__(self, federation: str, authority: Authority, verify: Verifier) -> None:
        self._federation = federation
        self._authority = authority
        self._verify = verify
        self._proven: dict[bytes, bytes] = {}  # facts and signature, by certificate

    def check(self, ann: CoreAnn, *, now_s: int) -> Certificate:
        """Accept an announcement that its core signed.

        Raises:
            DistrustError: It did not, or it is not who it says.
            DecodeError: There is no proof.
        """
        if not ann.proof:
            raise DistrustError(f"an announcement of core {ann.core} without its signature")
        proof = decode_proof(ann.proof)
        certificate = self._authority.judge(proof.certificate, now_s=now_s)
        if certificate.id != ann.core:
            text = f"an announcement of core {ann.core} signed by broker {certificate.id}"
            raise DistrustError(text)
        facts = facts_of(self._federation, ann)
        told = facts + proof.signature
        if self._proven.get(told) == proof.certificate:
            return certificate
        if not self._verify(certificate.signing_key, proof.signature, facts):
            raise DistrustError(f"the signature on an announcement of core {ann.core} is wrong")
        if len(self._proven) >= PROVEN_MAX:
            self._proven.clear()
        self._proven[told] = proof.certificate
        return certificate


def encode_proof(proof: Proof) -> bytes:
    """The wire form."""
    return _encoder.encode(proof)


def decode_proof(data: bytes) -> Proof:
    """What travelled as a proof.

    Raises:
        DecodeError: It is none.
    """
    if len(data) > PROOF_BYTES_MAX:
        raise DecodeError(f"proof: {len(data)} bytes, at most {PROOF_BYTES_MAX} wanted")
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"proof: {error}") from error
