"""Which neighbours' frames are accepted.

Any client may publish on our broker, and a frame changes the duplicate window for good.
"""

import math

from federator.protocol.types import BrokerId, Now

SENDER_LINGER_MS = 10_000
"""Frames of a neighbour are accepted for so long after its link went down: some are under way."""


class Senders:
    """Neighbours from which frames are accepted, and until when (monotonic milliseconds)."""

    def __init__(self) -> None:
        self.until_ms: dict[BrokerId, float] = {}

    def hear(self, neighbour: BrokerId, up: bool, now: Now) -> None:
        """Accept frames of ``neighbour`` from now on, or only for a short time."""
        until_ms = self.until_ms
        if up:
            until_ms[neighbour] = math.inf
        elif until_ms.get(neighbour) == math.inf:
            until_ms[neighbour] = now.ms + SENDER_LINGER_MS
            for gone in [n for n, end_ms in until_ms.items() if end_ms < now.ms]:
                del until_ms[gone]
