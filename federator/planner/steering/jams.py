"""What links carry at one moment, and which of them have been too full for long: jams.

Like traffic news, which report a jam when several messages agree, not each car that brakes.
"""

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
"""So many samples in a row must show a link over the threshold before anything moves. Agents report
rates of the last ten seconds: a burst of two is in six samples at most, and noise must not make a
jam of it. After so many samples the rates of a lasting shift are known, too."""

DOUBT: Final = 2.0
"""A link counts as over a limit if it is by so many standard errors."""

SURE: Final = 4.5
"""The same for moves that break the hold time: reported rates are means of ten seconds, reported
every two, so five of them are worth one, and real standard errors are 2.2 times as large."""

UNKNOWN: Final = 0.05
"""While rates change, a load with a doubt above this share of the link is unknown: reported means
lag, and moves based on them would have to be corrected."""


@dataclass(frozen=True, slots=True)
class Present:
    """The federation at one moment: flows with their ways, and what links carry, in bit/s."""

    network: Network
    capacity: FloatArray  # infinite if unknown
    assumed: FloatArray  # the same, with guesses
    ways: Mapping[FlowKey, tuple[int, ...]]
    load: FloatArray
    error: FloatArray  # standard error of ``load``
    changing: FloatArray  # the part of ``load`` of flows with a rate that has just changed

    def shares(self, load: FloatArray) -> dict[Ends, float]:
        """Load over capacity, where that is known."""
        links = np.flatnonzero(np.isfinite(self.capacity))
        return {self.network.links[k]: float(load[k] / self.capacity[k]) for k in links.tolist()}

    def surely_over(self, links: Iterable[Ends], limit: float) -> bool:
        """Whether one of ``links`` is fuller than ``limit``, beyond doubt."""
        sure = self.shares(self.load - SURE * self.error)
        return any(sure.get(ends, 0.0) > limit for ends in links)

    def doubtful(self, links: Iterable[Ends]) -> list[Ends]:
        """Those of ``links`` with an uncertain load, because rates there have changed."""
        doubt = DOUBT * self.error > UNKNOWN * self.capacity
        unknown = doubt & (self.changing > 0)
        return [ends for ends in links if unknown[self.network.at[ends]]]


class Jams:
    """Remembers which links the last samples showed over ``threshold``."""

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self._in_a_row: dict[Ends, int] = {}  # the last samples over it

    def sample(self, network: Network, capacity: FloatArray, load: FloatArray) -> None:
        """Note the newest ``load`` of each link, in bit/s; other links are forgotten."""
        over = load > self._threshold * capacity
        before, self._in_a_row = self._in_a_row, {}
        for link in np.flatnonzero(np.isfinite(capacity)).tolist():
            ends = network.links[link]
            self._in_a_row[ends] = before.get(ends, 0) + 1 if over[link] else 0

    def lasting(self, now: Present) -> set[Ends]:
        """Links that are over the threshold, beyond doubt, and were in all of the last samples."""
        sure = now.shares(now.load - DOUBT * now.error)
        over = [ends for ends, share in sure.items() if share > self._threshold]
        return {ends for ends in over if self._in_a_row.get(ends, 0) >= SAMPLES}

    def forget(self, links: Iterable[Ends]) -> None:
        """Start again with these links, where flows moved."""
        for ends in links:
            self._in_a_row.pop(ends, None)
