"""Recent deliveries to one client, kept as received.

They are only read when the client's broker dies: they show what the client got, so that it gets the
rest and nothing twice. So they cost one append of a block per socket read. All clients share an
allowance of bytes. When it is used up, a client that gets more drops its own oldest blocks, so that
a flood to one client does not cost others their memory. What is forgotten may be delivered twice.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from federator.protocol.types import Millis

KEEP_MS: Final = 5_000
BYTES_MAX: Final = 67_108_864
"""The limit where none is configured."""

SEEN_TOPICS_MAX: Final = 4_096
"""Topics remembered per client; on others the client gets nothing that it missed."""


@dataclass(slots=True)
class Allowance:
    """The bytes that all clients may use together, and those in use."""

    bytes_max: int
    bytes: int = 0


class RecentDeliveries:
    """One client's blocks with QoS 1 and 2 deliveries, and the topics it ever received.

    Args:
        keep_ms: How long blocks are kept.
        allowance: A byte limit shared with other clients; without it, a limit of its own.
    """

    __slots__ = ("_allowance", "_blocks", "_keep_ms", "_seen")

    def __init__(self, keep_ms: int = KEEP_MS, allowance: Allowance | None = None) -> None:
        self._allowance = allowance or Allowance(BYTES_MAX)
        self._keep_ms = keep_ms
        self._blocks: deque[tuple[Millis, bytes]] | None = None  # most clients never receive any
        self._seen: set[int] | None = None

    def since(self, since_ms: Millis) -> Iterator[bytes]:
        """The blocks received since ``since_ms``, oldest first."""
        return (block for came_ms, block in self._blocks or () if came_ms >= since_ms)

    def add(self, block: bytes, now_ms: Millis) -> None:
        """Remember ``block``, and drop what is too old or too much."""
        if self._blocks is None:
            self._blocks = deque()
        self._blocks.append((now_ms, block))
        self._allowance.bytes += len(block)
        self.forget(now_ms)

    def see(self, topic: bytes) -> None:
        """Note that the client received something on ``topic``."""
        if self._seen is None:
            self._seen = set()
        if len(self._seen) < SEEN_TOPICS_MAX:
            self._seen.add(hash(topic))  # a topic may have 65,535 bytes

    def has_seen(self, topic: bytes) -> bool:
        """Whether a broker ever delivered to the client on ``topic``, so that it may read it."""
        return self._seen is not None and hash(topic) in self._seen

    def forget(self, now_ms: Millis) -> None:
        """Drop what is too old or too much."""
        blocks, allowance, before_ms = self._blocks, self._allowance, now_ms - self._keep_ms
        while blocks and (blocks[0][0] < before_ms or allowance.bytes > allowance.bytes_max):
            allowance.bytes -= len(blocks.popleft()[1])

    def close(self) -> None:
        """Return the bytes to the allowance: the client is gone."""
        for _, block in self._blocks or ():
            self._allowance.bytes -= len(block)
        self._blocks = None
