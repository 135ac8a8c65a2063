"""Which topics look like a loop: the same publication keeps coming, quickly.

That is how a copy that circulates shows, and so does a sensor that says 21.5 ten times a second. So
this only raises a hand; ``detection`` puts the topic to the test. A topic that was cleared
is left alone for a while, for longer each time, as a teacher learns whose raised hand means
nothing.

A way round that is slow, or whose brokers are overloaded by the very storm, is longer than what is
quick. But then copies pile up until repetitions come by the thousand; in such a **storm** longer
gaps count as quick as well.

Source: docs/rules.md 3.
"""

from dataclasses import dataclass

from federator.protocol.bounded_cache import Recent
from federator.protocol.loops.accounts import Digest
from federator.protocol.types import Millis

SIGHTS_MAX = 65_536
"""Publications remembered at a time; the oldest give way."""

STORM_REPEATS = 2_000
"""Repetitions within a second, of all topics, that are a storm for the next second."""

STORM_GAP_MS = 1_000
"""What counts as quick then."""

CLEARED_MAX = 8_192
"""Topics that were cleared and are remembered; the oldest give way."""

CLEARED_MS_MIN, CLEARED_MS_MAX = 1_000, 3_600_000
"""For how long a cleared topic is not suspected again; doubles."""


@dataclass(slots=True)
class _Sight:
    at_ms: Millis
    repeats: int = 0
    gap_ms: int = 0  # the longest within ``repeats``


class Suspicions:
    """Remembers publications seen lately, and topics that were cleared."""

    def __init__(self, *, gap_ms_max: int, repeats_min: int) -> None:
        self._gap_ms_max = gap_ms_max  # between two of the same publication, if that is quick
        self._repeats_min = repeats_min  # quick ones in a row that are suspicious
        self._second = 0
        self._repeats = 0  # in that second
        self._gap_ms_now = gap_ms_max
        self._sights: Recent[Digest, _Sight] = Recent(SIGHTS_MAX)
        self._cleared: Recent[str, tuple[Millis, int]] = Recent(CLEARED_MAX)  # until, for how long

    def __len__(self) -> int:
        return len(self._sights)

    def see(
        self, topic: str, digest: Digest, *, now_ms: Millis, at_once: bool = False
    ) -> int | None:
        """Note a publication; return the longest gap, in ms, between those that make ``topic``
        suspicious, or ``None`` when it is not, or was cleared. ``at_once``: two are enough.
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
        """Note a publication that counts as no repetition, but of which the next one is."""
        self._sights.put(digest, _Sight(now_ms))

    def _patience_ms(self, gap_ms: int, now_ms: Millis) -> int:
        """The longest gap that is quick, as things are; one of ``gap_ms`` has just been seen."""
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
