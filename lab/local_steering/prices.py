"""What a place in a link costs: nothing while it keeps up, then more until somebody leaves.

An auction with a rising price, held by the link's tail: who has the cheapest way around leaves
first, and when enough have left the price falls again. Whether a link is too full is judged as the
central steerer does it: by the median of a minute, two standard errors, eight samples in a row.

Source: dual ascent on the capacities, in doubling steps so that the dearest way around is found in
seconds; docs/steering.md.
"""

from collections import deque
from typing import Final

from federator.planner.steering.estimate import SAMPLES_MAX, Estimate
from federator.planner.steering.jams import DOUBT, SAMPLES
from federator.protocol.steering.link_meter import SPAN_MS
from federator.protocol.types import Millis
from lab.local_steering.words import AMOUNT_MAX, PRICE_MAX

THRESHOLD: Final = 0.8
FULL: Final = 0.93
"""Over this the price rises until somebody leaves: rates are known to a few per cent only, and no
link is to be over 95 %."""

PRICE_FIRST: Final = 0.5
PRICE_RISE: Final = 2.0
PRICE_FALL: Final = 2.0
SHIFTS_MAX: Final = 64
"""Flows that moved of late, of one link."""


class LinkPricer:
    """The load and the price of one direction of a link, at its tail.

    Attributes:
        load: bit/s that is handed to it.
        price: What makes it (1 + price) times as long.
    """

    def __init__(self) -> None:
        self.load = self.price = 0.0
        self._rates: deque[float] = deque(maxlen=SAMPLES_MAX)
        self._shifts: deque[tuple[Millis, float]] = deque(maxlen=SHIFTS_MAX)
        self._estimate = Estimate()
        self._capacity: float | None = None

    def sample(self, rate: float, capacity: float | None, now_ms: Millis) -> None:
        """Take a rate of the last ten seconds, every two."""
        self._capacity = capacity
        while self._shifts and now_ms - self._shifts[0][0] >= SPAN_MS:
            self._shifts.popleft()
        # Of flows that moved since, it tells only a part.
        rate += sum(moved * (1 - (now_ms - at_ms) / SPAN_MS) for at_ms, moved in self._shifts)
        rate = max(0.0, rate)
        self._rates.append(rate)
        self._estimate.add(rate)
        self.load = min(self._estimate.value, AMOUNT_MAX)
        over = self._over(THRESHOLD)
        if not over:
            self.price = self.price / PRICE_FALL if self.price > PRICE_FIRST else 0.0
        elif self._over(FULL):
            self.price = min(max(PRICE_FIRST, self.price * PRICE_RISE), PRICE_MAX)
        else:  # it does no harm yet: only whoever can leave cheaply is to do so
            self.price = PRICE_FIRST

    def shift(self, rate: float, now_ms: Millis) -> None:
        """A flow of ``rate`` joins from now on, or leaves when that is negative."""
        self._shifts.append((now_ms, rate))
        self._rates = deque((max(0.0, each + rate) for each in self._rates), maxlen=SAMPLES_MAX)
        self._estimate = Estimate()
        for each in self._rates:
            self._estimate.add(each)
        self.load = min(self._estimate.value, AMOUNT_MAX)
        if not self._over(THRESHOLD):  # enough have left: nobody else is to
            self.price = 0.0

    def _over(self, limit: float) -> bool:
        """Whether the link has been over that share of its capacity for long, and surely is."""
        capacity = self._capacity
        if not capacity or self.load - DOUBT * self._estimate.error <= limit * capacity:
            return False
        recent = list(self._rates)[-SAMPLES:]
        return sum(rate > limit * capacity for rate in recent) == SAMPLES
