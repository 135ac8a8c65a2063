"""How prices move along a subgradient: two rules.

A subgradient points uphill only roughly, so the length of the step matters. ``Polyak`` aims at a
known target, the best answer so far, and takes shorter steps when the bound stops rising; the paper
used it. ``DistanceOverGradients`` needs neither target nor tuning: its step is the distance from
its start, over the root of all squared slopes so far.

Sources: B. T. Polyak (1969); M. Held, P. Wolfe, H. P. Crowder (1974); M. Ivgi, O. Hinder, Y.
Carmon, "DoG is SGD's best friend" (2023).
"""

from enum import StrEnum

import numpy as np

from federator.planner.flow.instance import FloatArray

PATIENCE = 6
"""Steps without a better bound before Polyak's scale halves."""


class Rule(StrEnum):
    """The rule by which prices move."""

    POLYAK = "polyak"
    DOG = "dog"


def _uphill(prices: FloatArray, slope: FloatArray) -> FloatArray:
    """``slope`` without components that would push a zero price below zero."""
    return np.where((prices <= 0) & (slope < 0), 0.0, slope)


class Polyak:
    """Step ``scale * (target - bound) / |slope|^2``; ``scale`` halves when nothing improves."""

    def __init__(self) -> None:
        self._scale = 1.0  # at first; 0 to 2
        self._best = -np.inf
        self._idle = 0

    def step(
        self, prices: FloatArray, slope: FloatArray, *, bound: float, target: float
    ) -> FloatArray:
        """Prices after one step uphill, none negative, shape (E,).

        At ``prices`` the relaxation has the value ``bound`` and the ``slope``, load less capacity;
        its value is at most ``target``.
        """
        if bound > self._best:
            self._best, self._idle = bound, 0
        else:
            self._idle += 1
            if self._idle > PATIENCE:
                self._scale, self._idle = self._scale / 2, 0
        uphill = _uphill(prices, slope)
        norm = float(uphill @ uphill)
        if norm == 0:
            return prices
        length = self._scale * max(target - bound, 0.0) / norm
        return np.maximum(0.0, prices + length * uphill)


class DistanceOverGradients:
    """Step ``distance from the start / sqrt(sum of |slope|^2)``."""

    def __init__(self) -> None:
        self._far = 0.5  # until there is a distance
        self._squares = 0.0
        self._start: FloatArray | None = None

    def step(
        self, prices: FloatArray, slope: FloatArray, *, bound: float, target: float
    ) -> FloatArray:
        """Prices after one step, as for ``Polyak``; uses neither ``bound`` nor ``target``."""
        if self._start is None:
            self._start = prices.copy()
        uphill = _uphill(prices, slope)
        self._squares += float(uphill @ uphill)
        if self._squares == 0:
            return prices
        self._far = max(self._far, float(np.linalg.norm(prices - self._start)))
        moved: FloatArray = prices + self._far / np.sqrt(self._squares) * uphill
        return np.maximum(0.0, moved)


def make(rule: Rule) -> Polyak | DistanceOverGradients:
    """A fresh instance of ``rule``."""
    return Polyak() if rule is Rule.POLYAK else DistanceOverGradients()
