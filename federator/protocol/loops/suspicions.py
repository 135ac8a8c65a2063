"""Finds topics that look like a loop: the same publication keeps coming, quickly.

A circulating copy looks like that, but so does a sensor that publishes 21.5 ten times a second. So
this only raises a suspicion; ``detection`` tests the topic. A topic that was cleared is left alone
for a while, for longer each time.

A way round that is slow, or whose brokers are overloaded by the copies, is longer than the usual
limit. But then copies pile up until repetitions come by the thousand; in such a **storm** longer
gaps count as quick as well.

Source: docs/rules.md 3.
"""

from dataclasses import dataclass

from federator.protocol.bounded_cache import Recent
from federator.protocol.loops.accounts import Digest
from federator.protocol.types import Millis

SIGHTS_MAX = 65_536
"""Publications remembered at a time; the oldest are dropped."""

STORM_REPEATS = 2_000
"""So many repetitions within a second, on all topics, make the next second a storm."""

STORM_GAP_MS = 1_000
"""The longest quick gap in a storm."""

CLEARED_MAX = 8_192
"""Cleared topics remembered; the oldest are dropped."""

CLEARED_MS_MIN, CLEARED_MS_MAX = 1_000, 3_600_000
"""For how long a cleared topic is not suspected again; doubles."""


@dataclass(slots=True)
class _Sight:
    at_ms: Millis
    repeats: int = 0
    gap_ms: int = 0  # the longest within ``repeats``


class Suspicions:
    """Remembers recent publications, and topics that were cleared."""

    def __init__(self, *, gap_ms_max: int, repeats_min: int) -> None:
        self._gap_ms_max = gap_ms_max  # longest quick gap between two equal publications
        self._repeats_min = repeats_min  # quick ones in a row that are suspicious
        self._second = 0
        self._repeats = 0  # in that second
        self._gap_ms_now = gap_ms_max
        self._sights: Recent[Digest, _Sight] = Recent(SIGHTS_MAX)
        # Until when, for how long.
        self._cleared: Recent[str, tuple[Millis, int]] = Recent(CLEARED_MAX)

    def __len__(self) -> int:
        return len(self._sights)

    def see(
        self, topic: str, digest: Digest, *, now_ms: Millis, at_once: bool = False
    ) -> int | None:
        """Record a publication; return a gap in ms if ``topic`` is suspicious and was not cleared.

        The gap is the longest between the repetitions. ``at_once``: one repetition is enough.
        """
        sight = self._sights.get(digest)
        if sight is None:
            self._sights.put(digest, _Sight(now_ms))
            return None
        self._sights.move_to_end(digest)
        gap_ms, sight.at_ms = now_ms - sight.at_ms, now_ms
        if gap_ms > self._patience_ms(gap_ms, now_ms):
            sight.repeats = sight.gap_ms = 0
            return None
        sight.repeats += 1
        sight.gap_ms = max(sight.gap_ms, gap_ms)
        if sight.repeats < (1 if at_once else self._repeats_min):
            return None
        gap_ms = sight.gap_ms
        sight.repeats = sight.gap_ms = 0
        until_ms, _ = self._cleared.get(topic, (Millis(0), 0))
        return None if now_ms < until_ms else gap_ms

    def note(self, digest: Digest, *, now_ms: Millis) -> None:
        """Record a publication that is no repetition, so that the next equal one is."""
        self._sights.put(digest, _Sight(now_ms))

    def _patience_ms(self, gap_ms: int, now_ms: Millis) -> int:
        """The longest gap that is quick now; one of ``gap_ms`` was just observed."""
        second = now_ms // 1_000
        if second != self._second:
            storm = second == self._second + 1 and self._repeats >= STORM_REPEATS
            self._gap_ms_now = max(self._gap_ms_max, STORM_GAP_MS if storm else 0)
            self._second, self._repeats = second, 0
        self._repeats += gap_ms <= STORM_GAP_MS
        return self._gap_ms_now

    def clear(self, topic: str, *, now_ms: Millis) -> None:
        """Leave ``topic`` alone for a while: it was tested, and is no loop."""
        _, span_ms = self._cleared.pop(topic, (Millis(0), CLEARED_MS_MIN // 2))
        span_ms = min(2 * span_ms, CLEARED_MS_MAX)
        self._cleared.put(topic, (Millis(now_ms + span_ms), span_ms))

    def forget(self) -> None:
        """Forget all publications and cleared topics."""
        self._sights.clear()
        self._cleared.clear()
