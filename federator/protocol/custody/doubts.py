"""Which of an origin's numbers we doubt, and our questions to the origin about them.

Any neighbour may deliver a frame in an origin's name, so a number may be forged, and a chain that
moved to it may be wrong. A doubt is a chain and a number on it. The origin answers with its *word*:
the greatest number of the chain up to the doubted one. If that is another number, the origin never
made the doubted one. The signature covers the question, so an answer cannot be replayed for another
one.

Source: docs/protocol.md section 11; docs/security.md.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from federator.protocol.custody.proofs import frame_text
from federator.protocol.forwarding.frames import Frame
from federator.protocol.messages.control import CHAINS_PER_REQUEST_MAX, AskedChain
from federator.protocol.timers import Timers
from federator.protocol.trust.guard import Seals
from federator.protocol.types import BrokerId, Millis, Now

ASK_GAP_MS: Final = 250
"""Time between two questions to one origin, on average."""

BURST: Final = 4
"""How many questions may be sent at once."""

ASK_GAP_MAX_MS: Final = 8_000
TRIES_MAX: Final = 12
ORIGINS_MAX: Final = 1_024
CHAINS_MAX: Final = CHAINS_PER_REQUEST_MAX // 4

_ASKED = struct.Struct(">Q")
_TEXT = struct.Struct(">IIQQQ")


class Doubted(NamedTuple):
    """A number that its origin may not have made, and the neighbour that delivered it."""

    number: int
    brought_by: BrokerId
    # If the chain skipped ``number``: its position before. The forged number is then the one that
    # the chain went on to.
    back_to: int | None = None


class Question(NamedTuple):
    """A question to ``origin``; ``asked_us`` identifies it."""

    origin: BrokerId
    asked_us: int
    chains: tuple[AskedChain, ...]


@dataclass(slots=True)
class _Open:
    chains: dict[bytes, Doubted] = field(default_factory=dict)
    asked: dict[bytes, Doubted] = field(default_factory=dict)
    asked_us: int = 0
    asked_ms: int = -ASK_GAP_MS
    spent_ms: int = 0  # the time at which the average rate allows the next question
    tries: int = 0


class Doubts:
    """The doubts about all origins: at most ``ORIGINS_MAX`` times ``CHAINS_MAX``."""

    def __init__(self) -> None:
        self._origins: dict[BrokerId, _Open] = {}
        self._timers: Timers[BrokerId] = Timers()

    def doubt(self, origin: BrokerId, key: bytes, doubted: Doubted, *, now_ms: Millis) -> None:
        """Ask ``origin`` whether it made a number on the chain ``key``."""
        open_ = self._origins.get(origin)
        if open_ is None:
            if len(self._origins) >= ORIGINS_MAX:
                oldest = next(iter(self._origins))
                del self._origins[oldest]
                self._timers.clear(oldest)
            open_ = self._origins[origin] = _Open()
        due_ms = open_.asked_ms + ASK_GAP_MS
        if key not in open_.chains and len(open_.chains) < CHAINS_MAX:
            open_.chains[key] = doubted
            due_ms = open_.spent_ms - (BURST - 1) * ASK_GAP_MS
        open_.tries = 0
        self._timers.set_sooner(origin, Millis(max(now_ms, due_ms)))

    def is_about(self, origin: BrokerId, key: bytes) -> bool:
        open_ = self._origins.get(origin)
        return open_ is not None and key in open_.chains

    def next_deadline_ms(self) -> Millis | None:
        return self._timers.next_deadline_ms()

    def questions(self, now: Now) -> list[Question]:
        """The questions to send now. Unanswered ones are repeated at growing intervals."""
        questions = []
        for origin in self._timers.pop_due(now.ms):
            open_ = self._origins[origin]
            if not open_.chains or open_.tries >= TRIES_MAX:
                if open_.spent_ms <= now.ms:
                    del self._origins[origin]
                else:
                    open_.chains.clear()
                    self._timers.set(origin, Millis(open_.spent_ms))
                continue
            open_.asked_ms = now.ms
            open_.spent_ms = max(open_.spent_ms, now.ms) + ASK_GAP_MS
            if open_.asked != open_.chains:  # otherwise the answer may be on its way
                open_.asked, open_.asked_us = dict(open_.chains), max(now.us, open_.asked_us + 1)
            gap_ms = min(ASK_GAP_MAX_MS, ASK_GAP_MS << open_.tries)
            open_.tries += 1
            self._timers.set(origin, Millis(now.ms + gap_ms))
            chains = tuple(AskedChain(k, d.number, 0) for k, d in sorted(open_.asked.items()))
            questions.append(Question(origin, open_.asked_us, chains))
        return questions

    def is_open(self, origin: BrokerId, asked_us: int) -> bool:
        """Whether ``asked_us`` identifies the last question to ``origin``, which is unanswered."""
        open_ = self._origins.get(origin)
        return open_ is not None and bool(open_.asked) and open_.asked_us == asked_us

    def answered(self, origin: BrokerId) -> Mapping[bytes, Doubted]:
        """Close the last question to ``origin``; return what it was about."""
        open_ = self._origins[origin]
        asked, open_.asked = open_.asked, {}
        open_.chains = {k: d for k, d in open_.chains.items() if asked.get(k) != d}
        return asked


class Notary:
    """Signs our words, and checks those of other origins.

    Args:
        seals: Our keys; ``None`` in an open federation, where every word is accepted.

    Attributes:
        proves: Our frames carry proofs (see ``proofs``), and our words say so.
    """

    def __init__(self, federation: str, seals: Seals | None) -> None:
        self._federation = federation.encode()
        self._seals = seals
        self.proves = seals is not None and seals.proves

    def sign(self, frame: Frame, asker: BrokerId, asked_us: int) -> None:
        """Sign ``frame``, our word, for the asker and its question."""
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
        """Whether the origin of ``frame`` signed it for ``asker``."""
        if self._seals is None:
            return True
        asked, proof = bytes(frame.body[: _ASKED.size]), bytes(frame.body[_ASKED.size :])
        text = self._text(frame, asker, asked, proves=frame.proof != b"")
        return self._seals.guard.vouched(frame.origin, text, frame.proof or proof)

    def prove(self, frame: Frame) -> None:
        """Put our proof into ``frame``, which is ours, if we prove frames."""
        if self.proves and self._seals is not None:
            frame.proof = self._seals.guard.vouch(frame_text(self._federation, frame))

    def check(self, frame: Frame) -> None:
        """Accept a frame that its origin proved.

        Raises:
            DecodeError: The proof does not match.
        """
        assert self._seals is not None, "proofs want keys"
        text = frame_text(self._federation, frame)
        self._seals.guard.check_frame(frame.origin, text, frame.proof)


def asked_us(frame: Frame) -> int:
    """The question that a word answers; 0 for none."""
    return _ASKED.unpack_from(frame.body)[0] if len(frame.body) >= _ASKED.size else 0
