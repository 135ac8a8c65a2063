"""What came for one client lately, kept as it came.

Nobody looks at it unless the client's broker dies: then it tells what the client got, so that it is
given the rest and nothing twice. So it costs the append of a block per socket read.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final

from federator.protocol.types import Millis

SEEN_TOPICS_MAX: Final = 4_096
"""Topics of one client that are remembered; beyond it, what it may read is told by the others."""


class Recent:
    """Blocks with deliveries at QoS 1 and 2, and the topics the client ever got.

    Args:
        keep_ms: How long blocks are kept.

    Attributes:
        bytes: Of all blocks.
    """

    __slots__ = ("_blocks", "_keep_ms", "_seen", "bytes")

    def __init__(self, keep_ms: int) -> None:
        self.bytes = 0
        self._keep_ms = keep_ms
        self._blocks: deque[tuple[Millis, bytes]] | None = None  # most clients never get any
        self._seen: set[bytes] | None = None

    def __iter__(self) -> Iterator[bytes]:
        """The blocks, oldest first."""
        return (block for _, block in self._blocks or ())

    def add(self, block: bytes, now_ms: Millis) -> None:
        """Remember ``block``, and forget what is too old."""
        blocks = self._blocks
        if blocks is None:
            blocks = self._blocks = deque()
        blocks.append((now_ms, block))
        self.bytes += len(block)
        before_ms = now_ms - self._keep_ms
        while blocks[0][0] < before_ms:
            self.bytes -= len(blocks.popleft()[1])

    def see(self, topic: bytes) -> None:
        """The client got something on ``topic``."""
        seen = self._seen
        if seen is None:
            seen = self._seen = set()
        if topic not in seen and len(seen) < SEEN_TOPICS_MAX:
            seen.add(topic)

    def has_seen(self, topic: bytes) -> bool:
        """Whether its broker ever gave it something on ``topic``, so that it may read it."""
        return self._seen is not None and topic in self._seen

    def forget(self) -> None:
        """Nothing of it is needed any more."""
        self._blocks = None
        self.bytes = 0
