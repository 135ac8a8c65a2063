"""The origin repeats, ever more seldom, which frame was the last one on each chain.

A gap shows when the next frame comes. When none comes, only the origin can tell that the last one
is missing, so it says so a tenth of a second after the chain fell silent, and then at growing
distances, as long as it could still help. The tails of many chains travel in one frame.

Source: docs/protocol.md section 11; the source path messages of PGM (RFC 3208).
"""

from collections import deque
from collections.abc import Iterator

from federator.protocol.types import Millis

STEPS_MS = (100, 400, 1_600, 6_400, 10_000)
"""After the last frame, after the first tail, and so on; the last one again and again."""

TAILS_PER_TURN_MAX = 2_048


class Tails:
    """When to repeat the head of which chain, for ``keep_ms`` after its last frame."""

    def __init__(self, *, keep_ms: int) -> None:
        self._keep_ms = keep_ms
        self._heads: dict[bytes, tuple[int, Millis]] = {}  # head, and when it was made
        self._queues: list[deque[tuple[Millis, bytes, int]]] = [deque() for _ in STEPS_MS]

    def __iter__(self) -> Iterator[bytes]:
        """The chains that are repeated."""
        return iter(self._heads)

    def made(self, key: bytes, seq: int, now_ms: Millis) -> None:
        """A frame was made on the chain of ``key``."""
        before = self._heads.get(key)
        self._heads[key] = (seq, now_ms)
        if before is None or before[1] + STEPS_MS[0] <= now_ms:  # otherwise it waits already
            self._queues[0].append((Millis(now_ms + STEPS_MS[0]), key, seq))

    def hasten(self, key: bytes, now_ms: Millis) -> None:
        """A new way leads to somebody who wants the chain: repeat its head now."""
        known = self._heads.get(key)
        if known is not None:
            self._queues[0].appendleft((now_ms, key, known[0]))

    def next_deadline_ms(self) -> Millis | None:
        """When ``due`` has something to say."""
        return min((queue[0][0] for queue in self._queues if queue), default=None)

    def due(self, now_ms: Millis) -> list[tuple[bytes, int]]:
        """The chains to repeat now, with their heads; at most ``TAILS_PER_TURN_MAX``."""
        found: dict[bytes, int] = {}
        for step, queue in enumerate(self._queues):
            while queue and queue[0][0] <= now_ms and len(found) < TAILS_PER_TURN_MAX:
                _, key, seq = queue.popleft()
                known = self._heads.get(key)
                if known is None:
                    continue
                head, made_ms = known
                if head != seq:
                    if step == 0:  # it goes on: look again when it may have fallen silent
                        queue.append((Millis(made_ms + STEPS_MS[0]), key, head))
                    continue
                if now_ms - made_ms > self._keep_ms:
                    del self._heads[key]
                    continue
                found[key] = head
                later = min(step + 1, len(STEPS_MS) - 1)
                self._queues[later].append((Millis(now_ms + STEPS_MS[later]), key, head))
        return list(found.items())
