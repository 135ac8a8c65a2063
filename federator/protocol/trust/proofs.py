"""Signatures that travel: a core's on its announcement, a broker's on its address, an agent's word.

A relay says what the way costs; that word is the relay's, sealed by it. That the core lives, its
number, its priority and the digest of its filters are the core's word, whoever brings it. So
nobody but broker 0 can be core 0, and nobody can raise another's number.

The digests of filter lists can be forged by a neighbour with a certificate, so an address among the
filters needs a signature of its own: whoever could change it could call every agent, with its
password, to a place of his choice.

Source: docs/security.md, "Announcements" and "Addresses"; docs/protocol.md 16.
"""

import struct
from typing import Annotated, Final

import msgspec

from federator.errors import DecodeError
from federator.protocol.messages.control import PROOF_BYTES_MAX, CoreAnn
from federator.protocol.trust.authority import Authority, DistrustError
from federator.protocol.trust.certificates import Certificate
from federator.protocol.trust.primitives import SIGNATURE_BYTES, Identity, Verifier
from federator.protocol.types import BrokerId, Epoch

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
    """Return our announcement ``ann`` with our proof."""
    signature = identity.sign(facts_of(federation, ann))
    return msgspec.structs.replace(ann, proof=encode_proof(Proof(certificate, signature)))


class ProofReader:
    """Judges signatures on announcements.

    Copies of one announcement come over every link, and are judged once.
    """

    def __init__(self, federation: str, authority: Authority, verify: Verifier) -> None:
        self._federation = federation
        self._authority = authority
        self._verify = verify
        self._proven: dict[bytes, bytes] = {}  # facts and signature, by certificate

    def check(self, ann: CoreAnn, *, now_s: int) -> Certificate:
        """Accept an announcement that its core signed.

        Raises:
            DistrustError: The core did not sign it, or is not who it says.
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
    """The wire form of ``proof``."""
    return _encoder.encode(proof)


def decode_proof(data: bytes) -> Proof:
    """What travelled as a proof.

    Raises:
        DecodeError: ``data`` is no proof.
    """
    if len(data) > PROOF_BYTES_MAX:
        raise DecodeError(f"proof: {len(data)} bytes, at most {PROOF_BYTES_MAX} wanted")
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"proof: {error}") from error


def presence_text(federation: str, about: bytes) -> bytes:
    """What an agent signs to show that it is the one at its own broker."""
    return b"federator presence 1\0" + federation.encode() + b"\0" + about


ADDRESSES_PROVEN_MAX: Final = 4_096

_WHOSE = struct.Struct(">IQ")


def address_text(federation: str, id: BrokerId, epoch: Epoch, address: str) -> bytes:
    """What a broker signs of its address."""
    whose = _WHOSE.pack(id, epoch)
    return b"federator address 1\0" + federation.encode() + b"\0" + whose + address.encode()


def prove_address(
    federation: str, id: BrokerId, epoch: Epoch, address: str, *, certificate: bytes, by: Identity
) -> bytes:
    """Our proof that we are at ``address``."""
    signature = by.sign(address_text(federation, id, epoch, address))
    return encode_proof(Proof(certificate, signature))


class AddressReader:
    """Judges signatures on addresses, each once."""

    def __init__(self, federation: str, authority: Authority, verify: Verifier) -> None:
        self._federation = federation
        self._authority = authority
        self._verify = verify
        self._proven: dict[tuple[bytes, bytes], None] = {}  # what was signed, and the proof

    def check(self, id: BrokerId, epoch: Epoch, address: str, proof: bytes, *, now_s: int) -> None:
        """Accept an address that its broker signed.

        Raises:
            DistrustError: The broker did not sign it.
            DecodeError: There is no proof.
        """
        if not proof:
            raise DistrustError(f"an address of broker {id} without its signature")
        read = decode_proof(proof)
        certificate = self._authority.judge(read.certificate, now_s=now_s)
        if certificate.id != id:
            raise DistrustError(f"an address of broker {id} signed by broker {certificate.id}")
        try:
            text = address_text(self._federation, id, epoch, address)
        except UnicodeError as error:
            raise DecodeError(f"address: {error}") from error
        if (text, proof) in self._proven:
            return
        if not self._verify(certificate.signing_key, read.signature, text):
            raise DistrustError(f"the signature on an address of broker {id} is wrong")
        if len(self._proven) >= ADDRESSES_PROVEN_MAX:
            self._proven.clear()
        self._proven[text, proof] = None
