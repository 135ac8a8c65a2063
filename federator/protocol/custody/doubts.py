"""What we doubt of an origin's numbers, and ask the origin itself.

Any neighbour may bring a frame in an origin's name, so a number may be a lie, and what our chains
made of it too. A doubt is a chain and a number on it. The origin answers with its *word*: the
greatest number of the chain up to the one we doubt. When that is another one, the origin never made
what we were told. It signs the question along, so that no answer serves for another one.

Source: docs/protocol.md section 11; docs/security.md.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from federator.protocol.custody.proofs import frame_text
from federator.protocol.data.ports import Seals
from federator.protocol.forwarding.frames import Frame
from federator.protocol.messages.control import CHAINS_PER_REQUEST_MAX, AskedChain
from federator.protocol.timers import Timers
from federator.protocol.types import BrokerId, Millis, Now

ASK_GAP_MS: Final = 250
"""Between two questions to one origin, on average."""

BURST: Final = 4
"""Questions that may follow each other at once."""

ASK_GAP_MAX_MS: Final = 8_000
TRIES_MAX: Final = 12
ORIGINS_MAX: Final = 1_024
CHAINS_MAX: Final = CHAINS_PER_REQUEST_MAX // 4

_ASKED = struct.Struct(">Q")
_TEXT = struct.Struct(">IIQQQ")


class Doubted(NamedTuple):
    """A number that its origin made, or did not, and the neighbour that brought it."""

    number: int
    brought_by: BrokerId
    # Where its chain stood before it went past ``number``, without it; then the lie is what it went
    # on to.
    back_to: int | None = None


class Question(NamedTuple):
    """What ``origin`` is to be asked; ``asked_us`` names the question."""

    origin: BrokerId
    asked_us: int
    chains: tuple[AskedChain, ...]


@dataclass(slots=True)
class _Open:
    chains: dict[bytes, Doubted] = field(default_factory=dict)
    asked: dict[bytes, Doubted] = field(default_factory=dict)
    asked_us: int = 0
    asked_ms: int = -ASK_GAP_MS
    spent_ms: int = 0  # until when the questions asked last until the average
    tries: int = 0


class Doubts:
    """The doubts about all origins: at most ``ORIGINS_MAX`` times ``CHAINS_MAX``."""

    def __init__(self) -> None:
        self._origins: dict[BrokerId, _Open] = {}
        self._timers: Timers[BrokerId] = Timers()

    def doubt(self, origin: BrokerId, key: bytes, doubted: Doubted, *, now_ms: Millis) -> None:
        """Whether ``origin`` made a number on the chain ``key`` must be asked."""
        known = self._origins.get(origin)
        if known is None:
            if len(self._origins) >= ORIGINS_MAX:
                oldest = next(iter(self._origins))
                del self._origins[oldest]
                self._timers.clear(oldest)
            known = self._origins[origin] = _Open()
        due_ms = known.asked_ms + ASK_GAP_MS
        if key not in known.chains and len(known.chains) < CHAINS_MAX:
            known.chains[key] = doubted
            due_ms = known.spent_ms - (BURST - 1) * ASK_GAP_MS
        known.tries = 0
        self._timers.set_sooner(origin, Millis(max(now_ms, due_ms)))

    def is_about(self, origin: BrokerId, key: bytes) -> bool:
        """Whether the chain ``key`` is doubted."""
        known = self._origins.get(origin)
        return known is not None and key in known.chains

    def next_deadline_ms(self) -> Millis | None:
        """When ``questions`` has something to say."""
        return self._timers.next_deadline_ms()

    def questions(self, now: Now) -> list[Question]:
        """What to ask now. It is asked again, ever more seldom, while nobody answers."""
        found = []
        for origin in self._timers.pop_due(now.ms):
            known = self._origins[origin]
            if not known.chains or known.tries >= TRIES_MAX:
                if known.spent_ms <= now.ms:
                    del self._origins[origin]
                else:
                    known.chains.clear()
                    self._timers.set(origin, Millis(known.spent_ms))
                continue
            known.asked_ms = now.ms
            known.spent_ms = max(known.spent_ms, now.ms) + ASK_GAP_MS
            if known.asked != known.chains:  # otherwise the answer may be on its way
                known.asked, known.asked_us = dict(known.chains), max(now.us, known.asked_us + 1)
            gap_ms = min(ASK_GAP_MAX_MS, ASK_GAP_MS << known.tries)
            known.tries += 1
            self._timers.set(origin, Millis(now.ms + gap_ms))
            chains = tuple(AskedChain(k, d.number, 0) for k, d in sorted(known.asked.items()))
            found.append(Question(origin, known.asked_us, chains))
        return found

    def is_open(self, origin: BrokerId, asked_us: int) -> bool:
        """Whether ``asked_us`` names the last question to ``origin``, and it is not answered."""
        known = self._origins.get(origin)
        return known is not None and bool(known.asked) and known.asked_us == asked_us

    def answered(self, origin: BrokerId) -> Mapping[bytes, Doubted]:
        """The last question to ``origin`` is answered; what it was about."""
        known = self._origins[origin]
        asked, known.asked = known.asked, {}
        known.chains = {k: d for k, d in known.chains.items() if asked.get(k) != d}
        return asked


class Notary:
    """Signs our word, and knows that of others.

    Args:
        seals: Whose keys; ``None`` in an open federation, where everybody is believed.

    Attributes:
        proves: Our frames are proven (see ``proofs``), and our word says so.
    """

    def __init__(self, federation: str, seals: Seals | None) -> None:
        self._federation = federation.encode()
        self._seals = seals
        self.proves = seals is not None and seals.proves

    def sign(self, frame: Frame, asker: BrokerId, asked_us: int) -> None:
        """Put into ``frame``, a word of ours, for whom and which question it is."""
        asked = _ASKED.pack(asked_us)
        text = self._text(frame, asker, asked, proves=self.proves)
        proof = b"" if self._seals is None else self._seals.guard.vouch(text)
        if self.proves:
            frame.body, frame.proof = memoryview(asked), proof
        else:
            frame.body = memoryview(asked + proof)

    def _text(self, frame: Frame, asker: BrokerId, asked: bytes, *, proves: bool) -> bytes:
        facts = _TEXT.pack(frame.origin, asker, frame.epoch, frame.seq, frame.origin_time_us)
        whole = (self._federation, b"\0", facts, asked, frame.keys, frame.chain)
        return (b"federator custody 2\0" if proves else b"federator custody 1\0") + b"".join(whole)

    def holds(self, frame: Frame, asker: BrokerId) -> bool:
        """Whether its origin signed ``frame`` for ``asker``."""
        if self._seals is None:
            return True
        asked, proof = bytes(frame.body[: _ASKED.size]), bytes(frame.body[_ASKED.size :])
        text = self._text(frame, asker, asked, proves=frame.proof != b"")
        return self._seals.guard.vouched(frame.origin, text, frame.proof or proof)

    def prove(self, frame: Frame) -> None:
        """Put our proof into ``frame``, which is ours, if we prove."""
        if self.proves and self._seals is not None:
            frame.proof = self._seals.guard.vouch(frame_text(self._federation, frame))

    def check(self, frame: Frame) -> None:
        """Accept a frame that its origin proved.

        Raises:
            DecodeError: The origin did not make it so.
        """
        assert self._seals is not None, "proofs want keys"
        text = frame_text(self._federation, frame)
        self._seals.guard.check_frame(frame.origin, text, frame.proof)


def asked_us(frame: Frame) -> int:
    """Which question a word answers; 0 for none."""
    return _ASKED.unpack_from(frame.body)[0] if len(frame.body) >= _ASKED.size else 0
