"""Round trips to other brokers, measured one at a time.

To choose the nearest of many, a broker need not measure them all, and must not measure them at
once: the one not measured for longest is next, and each broker has its own order, so that not all
measure the same one.

Source: docs/topology.md.
"""

from collections.abc import Iterable
from typing import Final

from federator.protocol.bounded_cache import Recent
from federator.protocol.topology.rings import seat
from federator.protocol.types import BrokerId, Millis

MEASURED_MAX: Final = 4_096
_ORDER: Final = 1_000_000
"""Plus a broker's id: the ring in the order in which the broker measures others."""


class Distances:
    """Round trips from one broker."""

    def __init__(self, self_id: BrokerId) -> None:
        self._ring = _ORDER + self_id
        # The one not measured for longest is first.
        self._far_ms: Recent[BrokerId, int | None] = Recent(MEASURED_MAX)
        self._measuring: BrokerId | None = None
        self._next_ms = Millis(0)

    def far_ms(self, id: BrokerId) -> int | None:
        """The round trip last measured; ``None`` when none was, or the measurement failed."""
        return self._far_ms.get(id)

    def order(self, id: BrokerId) -> bytes:
        """A key to sort brokers by: another order on every broker, so that choices differ."""
        return seat(self._ring, id)

    def may_measure(self, now_ms: Millis) -> bool:
        """Whether no measurement is running, and the pause is over."""
        return self._measuring is None and now_ms >= self._next_ms

    def choose(self, ids: Iterable[BrokerId], *, pause_ms: int, now_ms: Millis) -> BrokerId | None:
        """The broker to measure now, if any; the next one after the pause at the earliest."""
        age = {id: number for number, id in enumerate(self._far_ms, start=1)}
        self._next_ms = Millis(now_ms + pause_ms)
        self._measuring = min(ids, key=lambda id: (age.get(id, 0), self.order(id)), default=None)
        return self._measuring

    def on_measured(self, id: BrokerId, round_trip_ms: int | None) -> None:
        """Store the driver's measurement; one that we did not request is ignored."""
        if id != self._measuring:
            return
        self._measuring = None
        self._far_ms.put(id, round_trip_ms)
