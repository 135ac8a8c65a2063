"""A broker's signature on its own address, for those who hear of it from others.

A visiting card that only its owner can print. Announcements come through many hands, and their
filter lists have digests that a neighbour with a certificate could forge; whoever could change
an address in them could call every agent, with its password, to a place of his choice.

Source: docs/security.md, "Addresses"; docs/protocol.md section 16.
"""

import struct
from typing import Final

from federator.errors import DecodeError
from federator.protocol.trust.authority import Authority, DistrustError
from federator.protocol.trust.primitives import Identity, Verifier
from federator.protocol.trust.proofs import Proof, decode_proof, encode_proof
from federator.protocol.types import BrokerId, Epoch

PROVEN_MAX: Final = 4_096

_WHOSE = struct.Struct(">IQ")


def address_text(federation: str, id: BrokerId, epoch: Epoch, address: str) -> bytes:
    """What the broker signs."""
    whose = _WHOSE.pack(id, epoch)
    return b"federator address 1\0" + federation.encode() + b"\0" + whose + address.encode()


def prove_address(
    federation: str, id: BrokerId, epoch: Epoch, address: str, *, certificate: bytes, by: Identity
) -> bytes:
    """Our proof that we are at ``address``."""
    signature = by.sign(address_text(federation, id, epoch, address))
    return encode_proof(Proof(certificate, signature))


class AddressReader:
    """Judges proofs of addresses, each once."""

    def __init__(self, federation: str, authority: Authority, verify: Verifier) -> None:
        self._federation = federation
        self._authority = authority
        self._verify = verify
        self._proven: dict[tuple[bytes, bytes], None] = {}  # what was signed, and the proof

    def check(self, id: BrokerId, epoch: Epoch, address: str, proof: bytes, *, now_s: int) -> None:
        """Accept an address that its broker signed.

        Raises:
            DistrustError: It did not.
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
        if len(self._proven) >= PROVEN_MAX:
            self._proven.clear()
        self._proven[text, proof] = None
