"""What an agent says to itself by way of its broker: marks that nobody else can make.

Others may write where they are said, and hear them. So each holds a number and a proof under a key
that was drawn for this run and told nobody. A copy comes too late: what has QoS 1 queues behind the
mark itself, and what has QoS 0, which may overtake it, is not heard.

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


class OwnWords:
    """The words of one part of one agent, to be published at QoS 1.

    Attributes:
        refused: What came in our name and was not ours, or was too early to be it.
    """

    def __init__(self) -> None:
        self.refused = 0
        self._key = secrets.token_bytes(_KEY_BYTES)

    def say(self, number: int) -> bytes:
        """What to publish to hear ``number`` again."""
        said = number.to_bytes(_NUMBER_BYTES)
        return said + self._proof(said)

    def hear(self, packet: PublishPacket) -> int | None:
        """The number that we said; ``None`` when we did not say it."""
        said, proof = packet.payload[:_NUMBER_BYTES], packet.payload[_NUMBER_BYTES:]
        if packet.packet_id is not None and compare_digest(proof, self._proof(said)):
            return int.from_bytes(said)
        self.refused += 1
        return None

    def _proof(self, said: bytes) -> bytes:
        return blake2b(said, key=self._key, digest_size=_PROOF_BYTES).digest()
