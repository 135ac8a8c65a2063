"""Whose frames are taken.

Anybody may publish on our broker, and a frame changes the duplicate window for good.
"""

import math

from federator.protocol.types import BrokerId, Now

SENDER_LINGER_MS = 10_000
"""How long frames of a neighbour are taken after its link went down: they may be on their way."""


class Senders:
    """Neighbours whose frames are taken, and until when (monotonic milliseconds)."""

    def __init__(self) -> None:
        self.until_ms: dict[BrokerId, float] = {}

    def hear(self, neighbour: BrokerId, up: bool, now: Now) -> None:
        """Take frames that ``neighbour`` sends: from now on, or for a little while still."""
        until_ms = self.until_ms
        if up:
            until_ms[neighbour] = math.inf
        elif until_ms.get(neighbour) == math.inf:
            until_ms[neighbour] = now.ms + SENDER_LINGER_MS
            for gone in [n for n, end_ms in until_ms.items() if end_ms < now.ms]:
                del until_ms[gone]
