"""What a console remembers of each broker over time: rings of fixed size, filled by itself.

Every ``STEP_MS`` one sample of each broker is taken, for an hour; of every ``FOLDED`` samples the
mean is kept, for a day. A broker takes 20 kB however long it is watched, and all that a console may
know 21 MB. What was not known is a gap, never a zero. Who was stopped for more than an hour begins
anew.

Source: docs/console.md, "What it remembers".
"""

from array import array
from collections.abc import Mapping, Sequence
from math import isnan, nan
from typing import Any, Final

from federator.protocol.types import BrokerId, Millis

STEP_MS: Final = 5_000
FINE: Final = 720
"""Samples of an hour."""
FOLDED: Final = 60
"""Samples that become one of the coarser ones. ``FINE`` is a multiple of it."""
COARSE: Final = 288
"""Coarser samples, of five minutes each: a day."""
POINTS_MAX: Final = 288
"""Of each figure in one answer."""

FIELDS: Final = ("published", "delivered", "clients", "load", "answers")
"""Publications per second that came from its clients, and went to them; clients; how full its
fullest link is, of 1; and how much of the time its agent answered us, of 1."""

Sample = Sequence[float | None]
"""A value for each of ``FIELDS``; ``None`` where nothing is known."""


class _Rings:
    """One broker's samples, by tick modulo their number."""

    def __init__(self) -> None:
        self.fine = [array("f", [nan]) * FINE for _ in FIELDS]
        self.coarse = [array("f", [nan]) * COARSE for _ in FIELDS]

    def put(self, tick: int, sample: Sample) -> None:
        """Take the sample of ``tick``; the last of ``FOLDED`` is folded with those before."""
        for ring, value in zip(self.fine, sample, strict=True):
            ring[tick % FINE] = nan if value is None else value
        if tick % FOLDED == FOLDED - 1:
            for ring, folded in zip(self.fine, self.coarse, strict=True):
                folded[tick // FOLDED % COARSE] = _mean(_part(ring, tick))


class Samples:
    """The rings of all brokers; time is a monotonic clock's."""

    def __init__(self) -> None:
        self._rings: dict[BrokerId, _Rings] = {}
        self._began: int | None = None  # the first tick
        self._tick = -1  # the last one

    def due(self, now_ms: Millis) -> bool:
        """Whether a sample is to be taken now."""
        return now_ms // STEP_MS > self._tick

    def take(self, samples: Mapping[BrokerId, Sample], *, now_ms: Millis) -> None:
        """Take one sample of each broker; brokers that are not among them are forgotten."""
        tick = now_ms // STEP_MS
        if self._began is None or tick - self._tick > FINE:
            self._rings.clear()
            self._began, self._tick = tick, tick - 1
        for broker in self._rings.keys() - samples.keys():
            del self._rings[broker]
        unknown = (None,) * len(FIELDS)
        for broker, sample in samples.items():
            rings = self._rings.get(broker)
            if rings is None:
                rings = self._rings[broker] = _Rings()
            for missed in range(self._tick + 1, tick):
                rings.put(missed, unknown)
            rings.put(tick, sample)
        self._tick = tick

    def read(self, broker: BrokerId, span_s: int) -> dict[str, Any]:
        """The samples of the last ``span_s``, the oldest first, as evenly spaced points.

        As far back as there are any: up to an hour in steps of a few seconds, beyond that of five
        minutes. ``step_ms`` is between two points, the last of which ends now.
        """
        rings, began = self._rings.get(broker), self._began
        if rings is None or began is None:
            return {"step_ms": STEP_MS, "series": {name: [] for name in FIELDS}}
        ticks = min(max(1, span_s * 1_000 // STEP_MS), self._tick - began + 1)
        if ticks <= FINE:
            fold = -(-ticks // POINTS_MAX)
            step_ms, series = STEP_MS * fold, self._fine(rings, ticks, fold)
        else:
            points = min(-(-ticks // FOLDED), COARSE)
            step_ms, series = STEP_MS * FOLDED, self._coarse(rings, points)
        told = {
            name: [None if isnan(value) else round(value, 3) for value in values]
            for name, values in zip(FIELDS, series, strict=True)
        }
        return {"step_ms": step_ms, "series": told}

    def _fine(self, rings: _Rings, ticks: int, fold: int) -> list[list[float]]:
        ends = range(self._tick, self._tick - ticks, -fold)
        return [
            [_mean([ring[(end - n) % FINE] for n in range(fold)]) for end in reversed(ends)]
            for ring in rings.fine
        ]

    def _coarse(self, rings: _Rings, points: int) -> list[list[float]]:
        """Those that are whole, and what there is of the one that has begun."""
        now = self._tick // FOLDED
        begun = self._tick % FOLDED + 1
        return [
            [
                *(folded[n % COARSE] for n in range(now - points + 1, now)),
                _mean(_part(fine, self._tick)[:begun]),
            ]
            for fine, folded in zip(rings.fine, rings.coarse, strict=True)
        ]


def _part(ring: "array[float]", tick: int) -> "array[float]":
    """The samples that become one with that of ``tick``."""
    first = tick // FOLDED * FOLDED % FINE
    return ring[first : first + FOLDED]


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not isnan(value)]
    return sum(known) / len(known) if known else nan
