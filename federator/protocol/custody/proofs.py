"""Proofs: each origin signs its frames under custody, so no other agent can forge them.

A seal shows which neighbour delivered a frame: each postman puts the letter into an envelope of his
own. The proof is the signature on the letter. It covers everything that does not change on the way,
and comes with the origin's certificate, so any agent with the federation's key can check it. A
frame with a wrong proof is dropped: the chain shows the gap, and the origin is asked.

An origin that does not prove its frames says so in its word (``doubts``). Only then are its frames
accepted without proof; until then they wait. So a proof cannot be stripped on the way.

Source: docs/protocol.md section 11; docs/security.md.
"""

import struct
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from federator.errors import DecodeError
from federator.protocol.bounded_cache import Recent
from federator.protocol.effects import Notice
from federator.protocol.forwarding.counters import DataCounters
from federator.protocol.forwarding.frames import REPAIR_FLAG, TAIL_FLAG, VOID_FLAG, Frame
from federator.protocol.rate_limiter import RateLimiter, WindowCounter
from federator.protocol.trust.authority import ForgedError
from federator.protocol.types import BrokerId, Millis, Now

TOLD_MS: Final = 60_000
"""For how long an origin's statement whether it proves its frames is valid; then it is asked again.
"""

WAIT_MS: Final = 10_000
WAITING_BYTES_MAX: Final = 262_144
"""Limit, per neighbour, for frames that wait for their origin's word."""

ORIGIN_BYTES: Final = 4_096
"""What one origin counts in that limit: so a neighbour cannot make us ask many invented origins."""

ORIGINS_MAX: Final = 4_096
TICK_MS: Final = 50
WRONG_MAX: Final = 32
"""How many frames with a wrong signature a neighbour may deliver in a tick (0.14 ms each) in the
name of one origin; four times as many for all origins. Further ones are dropped unchecked.
"""

COMPLAINT_GAP_MS: Final = Millis(60_000)

_FACTS = struct.Struct(">BIQQQIH")


def frame_text(federation: bytes, frame: Frame) -> bytes:
    """What the origin signs of ``frame``."""
    kind = frame.flags & (TAIL_FLAG | VOID_FLAG | REPAIR_FLAG)
    made = (frame.origin, frame.epoch, frame.seq, frame.origin_time_us)
    content = blake2b(frame.keys, digest_size=32)
    content.update(frame.chain)
    content.update(frame.body)
    facts = _FACTS.pack(kind, *made, frame.publications, frame.k)
    return b"federator frame 1\0" + federation + b"\0" + facts + content.digest()


@dataclass(slots=True)
class _Waiting:
    until_ms: Millis
    frames: list[tuple[Frame, int]] = field(default_factory=list)
    size: int = ORIGIN_BYTES


class FrameJudge:
    """Judges the frames under custody, and tails, that neighbours deliver from other origins.

    Args:
        check: Raises ``DecodeError`` where an origin did not prove its frame.
        ask: Asks the origin of a frame for its word.
    """

    def __init__(
        self,
        check: Callable[[Frame], None],
        ask: Callable[[Frame, Now], None],
        tell: Callable[[Notice], None],
        counters: DataCounters,
    ) -> None:
        self._check = check
        self._request = ask
        self._report = tell
        self._counters = counters
        self._answers: Recent[BrokerId, tuple[bool, Millis]] = Recent(ORIGINS_MAX)
        self._waiting: OrderedDict[tuple[BrokerId, BrokerId], _Waiting] = OrderedDict()
        self._waiting_bytes: Counter[BrokerId] = Counter()
        self._accepted: list[tuple[Frame, int]] = []
        # By (neighbour, origin); with ``None`` for all origins of the neighbour.
        self._wrong: WindowCounter[tuple[BrokerId, BrokerId | None]] = WindowCounter(
            window_ms=TICK_MS
        )
        self._complaints: RateLimiter[BrokerId] = RateLimiter(gap_ms=COMPLAINT_GAP_MS, keys_max=64)

    def believes(self, frame: Frame, size: int, now: Now) -> bool:
        """Whether to accept ``frame``, of ``size`` bytes in all; otherwise drop it or hold it."""
        if frame.proof:
            return self._holds(frame, now)
        proves, told_ms = self._answers.get(frame.origin, (False, Millis(now.ms - TOLD_MS)))
        age_ms = now.ms - told_ms
        if age_ms >= TOLD_MS:
            self._wait(frame, size, now)
            return False
        if proves:
            self._refuse(frame, "without the proof of its origin", now)
            return False
        if age_ms >= TOLD_MS // 2:
            self._request(frame, now)
        return True

    def on_word(self, origin: BrokerId, *, proves: bool, now: Now) -> None:
        """Handle the statement of ``origin`` whether it proves its frames."""
        self._answers.put(origin, (proves, now.ms))
        for place in [place for place in self._waiting if place[1] == origin]:
            for frame, size in self._take(place):
                if proves:
                    self._refuse(frame, "without the proof of its origin", now)
                else:
                    self._accepted.append((frame, size))

    def released(self) -> list[tuple[Frame, int]]:
        """The frames that waited and are accepted now, each once."""
        accepted, self._accepted = self._accepted, []
        return accepted

    def _holds(self, frame: Frame, now: Now) -> bool:
        wrong = self._wrong.so_far(now.ms)
        place, in_all = (frame.sender, frame.origin), (frame.sender, None)
        if wrong[place] >= WRONG_MAX or wrong[in_all] >= 4 * WRONG_MAX:
            self._refuse(frame, "too many wrong ones before", now)
            return False
        try:
            self._check(frame)
        except DecodeError as error:
            if isinstance(error, ForgedError):  # other errors cost no signature check
                wrong.update((place, in_all))
            self._refuse(frame, str(error), now)
            return False
        return True

    def _refuse(self, frame: Frame, reason: str, now: Now) -> None:
        self._counters.unproven_frames += 1
        if self._complaints.allow(frame.sender, now.ms):
            details: dict[str, int | str] = {"neighbour": frame.sender, "origin": frame.origin}
            details |= {"reason": reason, "so_far": self._counters.unproven_frames}
            self._report(Notice("custody.unproven", "warning", details))

    def _wait(self, frame: Frame, size: int, now: Now) -> None:
        while self._waiting:
            place, oldest = next(iter(self._waiting.items()))
            if oldest.until_ms > now.ms:
                break
            self._take(place)
        place = (frame.sender, frame.origin)
        waiting = self._waiting.get(place)
        room = WAITING_BYTES_MAX - self._waiting_bytes[frame.sender]
        begun = ORIGIN_BYTES if waiting is None else 0
        if begun <= room:
            self._request(frame, now)  # also if the frame itself finds no room
        more = size + begun
        if more > room:
            self._refuse(frame, "too many wait for their origins' word", now)
            return
        if waiting is None:
            waiting = self._waiting[place] = _Waiting(Millis(now.ms + WAIT_MS))
        waiting.frames.append((frame, size))
        waiting.size += size
        self._waiting_bytes[frame.sender] += more

    def _take(self, place: tuple[BrokerId, BrokerId]) -> list[tuple[Frame, int]]:
        waiting = self._waiting.pop(place)
        self._waiting_bytes[place[0]] -= waiting.size
        return waiting.frames
