"""Control messages by neighbour and kind, added up since they were last taken.

Source: docs/metrics.md, "control".
"""

from collections.abc import Callable, Hashable
from typing import Final

from federator.protocol.telemetry.records import Direction
from federator.protocol.types import BrokerId

PEERS_MAX: Final = 4_096
"""Pairs of peer and kind in one window; anybody may name himself on a control topic."""


class PeerTraffic:
    """What went to whom and came from whom. Peers are links (out) and broker ids (in)."""

    def __init__(self) -> None:
        self._counts: dict[tuple[Hashable, str, Direction], list[int]] = {}

    def note(self, peer: Hashable, kind: str, direction: Direction, size: int) -> None:
        """A message of ``size`` bytes."""
        key = (peer, kind, direction)
        known = self._counts.get(key)
        if known is None:
            if len(self._counts) >= PEERS_MAX:
                key = (None, kind, direction)
            known = self._counts.setdefault(key, [0, 0])
        known[0] += 1
        known[1] += size

    def take(
        self, broker_of: Callable[[Hashable], BrokerId | None]
    ) -> dict[tuple[BrokerId | None, str, Direction], tuple[int, int]]:
        """Messages and bytes by neighbour, kind and direction, since this was last asked."""
        counts, self._counts = self._counts, {}
        told: dict[tuple[BrokerId | None, str, Direction], tuple[int, int]] = {}
        for (peer, kind, direction), (messages, size) in counts.items():
            key = (broker_of(peer), kind, direction)
            before = told.get(key, (0, 0))
            told[key] = (before[0] + messages, before[1] + size)
        return told
