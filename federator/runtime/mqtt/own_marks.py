"""Marks that an agent sends to itself through its broker and that no other client can forge.

Others may publish and subscribe on the same topic. So each mark holds a number and a proof under a
key drawn for this run and never sent. A replay comes too late: at QoS 1 it queues behind the mark
itself, and at QoS 0, where it may overtake the mark, it is ignored.

Source: docs/security.md, "Roles".
"""

import secrets
from hashlib import blake2b
from hmac import compare_digest
from typing import Final

from mqtt5 import PublishPacket

_KEY_BYTES: Final = 32
_PROOF_BYTES: Final = 16
_NUMBER_BYTES: Final = 8


class OwnMarks:
    """The marks of one part of one agent, to be published at QoS 1.

    Attributes:
        refused: How many received marks were forged, or came too early to be ours.
    """

    def __init__(self) -> None:
        self.refused = 0
        self._key = secrets.token_bytes(_KEY_BYTES)

    def write(self, number: int) -> bytes:
        """The payload to publish in order to receive ``number`` back."""
        digits = number.to_bytes(_NUMBER_BYTES)
        return digits + self._proof(digits)

    def read(self, packet: PublishPacket) -> int | None:
        """The number that we sent; ``None`` when the mark is not ours."""
        digits, proof = packet.payload[:_NUMBER_BYTES], packet.payload[_NUMBER_BYTES:]
        if packet.packet_id is not None and compare_digest(proof, self._proof(digits)):
            return int.from_bytes(digits)
        self.refused += 1
        return None

    def _proof(self, message: bytes) -> bytes:
        return blake2b(message, key=self._key, digest_size=_PROOF_BYTES).digest()
