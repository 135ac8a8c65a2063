"""What links carry at one moment, and which of them have been too full for long: jams.

Like traffic news, which tell of a jam when several reports agree, not of each car that brakes.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from federator.planner.flow.instance import FloatArray
from federator.planner.steering.network import Ends, Network
from federator.protocol.types import BrokerId

FlowKey = tuple[BrokerId, tuple[str, ...]]
"""A flow: its origin and its filters."""

SAMPLES: Final = 8
"""So many in a row must have told of a link over the threshold before anything moves. Agents tell
rates of the last ten seconds: a burst of two is in six samples at most, and what noise adds must
not make it a jam. After so many the rates of a lasting shift are known, too.
"""

DOUBT: Final = 2.0
"""Standard errors by which a link has to be over a limit to count as over it."""

SURE: Final = 4.5
"""The same where a move would break a promise: told rates are means of ten seconds, told every two,
so five of them say as much as one, and standard errors are 2.2 times what they seem to be.
"""

UNKNOWN: Final = 0.05
"""A load that chance may make so much more or less, as a share of the link, is not known yet while
rates change: what is told is the mean of some seconds, and moves by it would have to be mended.
"""


@dataclass(frozen=True, slots=True)
class Present:
    """The federation at one moment: flows with their ways, and what links carry, in bit/s."""

    network: Network
    capacity: FloatArray  # infinite where nobody knows
    assumed: FloatArray  # the same, but for guesses
    ways: Mapping[FlowKey, tuple[int, ...]]
    load: FloatArray
    error: FloatArray  # standard error of ``load``
    changing: FloatArray  # of ``load``, what flows make whose rate has just become another

    def shares(self, load: FloatArray) -> dict[Ends, float]:
        """Load over capacity, where that is known."""
        known = np.flatnonzero(np.isfinite(self.capacity))
        return {self.network.links[k]: float(load[k] / self.capacity[k]) for k in known.tolist()}

    def surely_over(self, links: Iterable[Ends], limit: float) -> bool:
        """Whether one of ``links`` is fuller than that share of its capacity, beyond doubt."""
        sure = self.shares(self.load - SURE * self.error)
        return any(sure.get(ends, 0.0) > limit for ends in links)

    def doubtful(self, links: Iterable[Ends]) -> list[Ends]:
        """Those of ``links`` whose load is not known well yet, as rates there have changed."""
        doubt = DOUBT * self.error > UNKNOWN * self.capacity
        unknown = doubt & (self.changing > 0)
        return [ends for ends in links if unknown[self.network.at[ends]]]


class Jams:
    """Remembers of which links the last samples told that they are over ``threshold``."""

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self._was_over: dict[Ends, deque[bool]] = {}

    def sample(self, network: Network, capacity: FloatArray, load: FloatArray) -> None:
        """Note what was told last, ``load`` bit/s of each link; other links are forgotten."""
        over = load > self._threshold * capacity
        before, self._was_over = self._was_over, {}
        for link in np.flatnonzero(np.isfinite(capacity)).tolist():
            ends = network.links[link]
            noted = self._was_over[ends] = before.get(ends) or deque(maxlen=SAMPLES)
            noted.append(bool(over[link]))

    def lasting(self, now: Present) -> set[Ends]:
        """Links that are over the threshold, beyond doubt, and were in all of the last samples."""
        sure = now.shares(now.load - DOUBT * now.error)
        over = [ends for ends, share in sure.items() if share > self._threshold]
        return {ends for ends in over if sum(self._was_over.get(ends, ())) == SAMPLES}

    def forget(self, links: Iterable[Ends]) -> None:
        """Begin again with these, where something moved."""
        for ends in links:
            self._was_over.pop(ends, None)
