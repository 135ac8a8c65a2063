"""What an origin sends to somebody who missed something.

An answer takes the asked chains together, oldest frame first, because a frame of several filters
can be delivered only when it is next on all of them. It is bounded: who asks gets the next part
when it asks again. What is gone from the archive is said to be gone.

Source: docs/protocol.md section 11.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from federator.protocol.custody.ports import Log
from federator.protocol.custody.record import Record
from federator.protocol.forwarding.frames import keys_in
from federator.protocol.messages.control import AskedChain

ANSWER_BYTES_MAX = 131_072
ANSWER_FRAMES_MAX = 256


@dataclass(frozen=True, slots=True)
class Repair:
    """One part of an answer: a frame, or the news that a chain has nothing up to ``through``."""

    frame: Record | None
    key: bytes = b""
    through: int = 0


def answer(
    archive: Log,
    chains: Sequence[AskedChain],
    *,
    bytes_max: int = ANSWER_BYTES_MAX,
    frames_max: int = ANSWER_FRAMES_MAX,
) -> list[Repair]:
    """What to send for a request, in this order."""
    repairs: list[Repair] = []
    runs: list[list[int]] = []
    for key, after, not_before_us in chains:
        through = _nothing_through(archive, key, after, not_before_us)
        if through > after or not_before_us:
            repairs.append(Repair(None, key, through))
        runs.append(archive.select(key, max(after, through), limit=frames_max))
    size, last = 0, 0
    for seq in heapq.merge(*runs):
        if seq == last:
            continue
        frame = archive.read(seq)
        if frame is None:
            break
        if size and (size + len(frame.body) > bytes_max or len(repairs) >= frames_max):
            break
        last = seq
        size += len(frame.body)
        repairs.append(Repair(frame))
    return repairs


def _nothing_through(archive: Log, key: bytes, after: int, not_before_us: int) -> int:
    """Up to where the chain has nothing for who asks: gone, or too old to be wanted."""
    through = max(after, archive.floor(key, after))
    if not_before_us:
        first = archive.first_since(key, not_before_us)
        frame = archive.read(first) if first is not None else None
        if frame is None:
            return max(through, archive.head(key))
        through = max(through, frame.prevs[keys_in(frame.keys).index(key)])
    return through
