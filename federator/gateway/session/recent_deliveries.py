"""What came for one client lately, kept as it came.

Nobody looks at it unless the client's broker dies: then it tells what the client got, so that it is
given the rest and nothing twice. So it costs the append of a block per socket read. All clients
share an allowance of bytes; when it is used up, a client that gets more forgets its own oldest
blocks, so that what one gets in a flood costs none of the others its memory. What is forgotten may
be given twice.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from federator.protocol.types import Millis

KEEP_MS: Final = 5_000
BYTES_MAX: Final = 67_108_864
"""What is remembered where nobody says how much."""

SEEN_TOPICS_MAX: Final = 4_096
"""Topics of one client that are remembered; on others it is given nothing that it missed."""


@dataclass(slots=True)
class Allowance:
    """Bytes that all clients may take up together, and those that are taken up now."""

    bytes_max: int
    bytes: int = 0


class RecentDeliveries:
    """One client's blocks with deliveries at QoS 1 and 2, and the topics it ever got.

    Args:
        keep_ms: How long blocks are kept.
        allowance: What they may take up with those of other clients; their own without.
    """

    __slots__ = ("_allowance", "_blocks", "_keep_ms", "_seen")

    def __init__(self, keep_ms: int = KEEP_MS, allowance: Allowance | None = None) -> None:
        self._allowance = allowance or Allowance(BYTES_MAX)
        self._keep_ms = keep_ms
        self._blocks: deque[tuple[Millis, bytes]] | None = None  # most clients never get any
        self._seen: set[int] | None = None

    def since(self, since_ms: Millis) -> Iterator[bytes]:
        """The blocks that came since, oldest first."""
        return (block for came_ms, block in self._blocks or () if came_ms >= since_ms)

    def add(self, block: bytes, now_ms: Millis) -> None:
        """Remember ``block``, and forget what is too old or too much."""
        if self._blocks is None:
            self._blocks = deque()
        self._blocks.append((now_ms, block))
        self._allowance.bytes += len(block)
        self.forget(now_ms)

    def see(self, topic: bytes) -> None:
        """Note that the client got something on ``topic``."""
        if self._seen is None:
            self._seen = set()
        if len(self._seen) < SEEN_TOPICS_MAX:
            self._seen.add(hash(topic))  # a topic may have 65,535 bytes

    def has_seen(self, topic: bytes) -> bool:
        """Whether its broker ever gave it something on ``topic``, so that it may read it."""
        return self._seen is not None and hash(topic) in self._seen

    def forget(self, now_ms: Millis) -> None:
        """Forget what is too old or too much."""
        blocks, allowance, before_ms = self._blocks, self._allowance, now_ms - self._keep_ms
        while blocks and (blocks[0][0] < before_ms or allowance.bytes > allowance.bytes_max):
            allowance.bytes -= len(blocks.popleft()[1])

    def close(self) -> None:
        """Give the bytes back to the allowance: the client is gone."""
        for _, block in self._blocks or ():
            self._allowance.bytes -= len(block)
        self._blocks = None
