"""An origin's word on its own numbers: signed, for one question of one broker.

A frame in an origin's name may be anybody's. What the origin answers when it is asked is not: it
signs the question along, so that no answer serves for another one.

Source: docs/protocol.md section 11; docs/security.md.
"""

import struct

from federator.protocol.data.ports import Seals
from federator.protocol.forwarding.frames import Frame
from federator.protocol.types import BrokerId

_ASKED = struct.Struct(">Q")
_TEXT = struct.Struct(">IIQQQ")


class Notary:
    """Signs our word, and knows that of others.

    Args:
        seals: Whose keys; ``None`` in an open federation, where everybody is believed.
    """

    def __init__(self, federation: str, seals: Seals | None) -> None:
        self._federation = federation.encode()
        self._seals = seals

    def sign(self, frame: Frame, asker: BrokerId, asked_us: int) -> None:
        """Put into ``frame``, a word of ours, for whom and which question it is."""
        asked = _ASKED.pack(asked_us)
        text = self._text(frame, asker, asked)
        proof = b"" if self._seals is None else self._seals.guard.vouch(text)
        frame.body = memoryview(asked + proof)

    def _text(self, frame: Frame, asker: BrokerId, asked: bytes) -> bytes:
        facts = _TEXT.pack(frame.origin, asker, frame.epoch, frame.seq, frame.origin_time_us)
        whole = (self._federation, b"\0", facts, asked, frame.keys, frame.chain)
        return b"federator custody 1\0" + b"".join(whole)

    def holds(self, frame: Frame, asker: BrokerId) -> bool:
        """Whether its origin signed ``frame`` for ``asker``."""
        if self._seals is None:
            return True
        asked, proof = bytes(frame.body[: _ASKED.size]), bytes(frame.body[_ASKED.size :])
        return self._seals.guard.vouched(frame.origin, self._text(frame, asker, asked), proof)


def asked_us(frame: Frame) -> int:
    """Which question a word answers; 0 for none."""
    return _ASKED.unpack_from(frame.body)[0] if len(frame.body) >= _ASKED.size else 0
