"""What the paper's text says about Figures 4 to 9, and whether our values say the same.

Schemes meet the same trees, so two of them are compared by their difference on each tree. An order
holds when the confidence interval of the mean difference lies on the right side of 0, fails when
on the wrong one, and is **level** when 0 is within.

Source: Esposito 2018, 4; docs/codecs.md for what of it differs here.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

from lab.papers import figures
from lab.papers.codecs.gossip import Mode
from lab.papers.codecs.schemes import Scheme
from lab.papers.codecs.tree import FloatArray
from lab.papers.figures import Verdict

CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """A mean and half the width of its confidence interval, infinite for one value."""

    mean: float
    half: float

    def __str__(self) -> str:
        if not math.isfinite(self.half):
            return f"{self.mean:,.4g}"
        digits = 2 if self.half == 0 else max(0, 1 - math.floor(math.log10(self.half)))
        return f"{self.mean:,.{digits}f} +- {self.half:.{digits}f}"


def estimate(values: Sequence[float] | FloatArray) -> Estimate:
    """Student's interval for the mean of independent ``values``; at least one."""
    found = np.asarray(values, dtype=np.float64)
    if len(found) < 2:
        return Estimate(float(found.mean()), math.inf)
    quantile = float(student.ppf((1 + CONFIDENCE) / 2, len(found) - 1))
    half = quantile * float(found.std(ddof=1)) / math.sqrt(len(found))
    return Estimate(float(found.mean()), half)


Values = Mapping[tuple[int, str], Mapping[float, FloatArray]]
"""By figure and series: by x, one value per seed."""

BEST, GENETIC = Scheme.BEST_EFFORT.value, Scheme.GENETIC.value
LEADER, ALONE = Scheme.LEADER_FOLLOWER.value, Scheme.NON_COOPERATIVE.value
PUSH, PULL = Mode.PUSH.value, Mode.PULL.value

NEAR_ONE = 0.99
CLOSE = 0.025
"""How much resiliency "close to gossip" may lack."""
BOUNDED = 1.15
"""How much overhead may change with the size and still be "slightly influenced"."""


Claim = figures.Claim[Values]


def by_series(rows: Iterable[figures.Row]) -> Values:
    return {
        key: {x: np.array(values) for x, values in curve.items()}
        for key, curve in figures.by_series(rows).items()
    }


def overall(values: Values, figure: int, series: str) -> FloatArray:
    found: FloatArray = np.mean(list(values[figure, series].values()), axis=0)
    return found


def difference(values: Values, figure: int, one: str, other: str) -> Estimate:
    return estimate(overall(values, figure, one) - overall(values, figure, other))


def _order(figure: int, *pairs: tuple[str, str]) -> Callable[[Values], Verdict]:
    def check(values: Values) -> Verdict:
        found = [difference(values, figure, more, less) for more, less in pairs]
        if any(each.mean + each.half < 0 for each in found):
            return Verdict.NO
        clear = all(each.mean - each.half > 0 for each in found)
        return Verdict.YES if clear else Verdict.LEVEL

    return check


def _differences(figure: int, *pairs: tuple[str, str]) -> Callable[[Values], str]:
    def told(values: Values) -> str:
        return ", ".join(
            f"{one} less {other}: {difference(values, figure, one, other)}" for one, other in pairs
        )

    return told


def _means(figure: int, *series: str) -> Callable[[Values], str]:
    return lambda v: ", ".join(f"{s} {estimate(overall(v, figure, s))}" for s in series)


def _most(figure: int, highest: str, others: tuple[str, ...]) -> Callable[[Values], bool]:
    def check(values: Values) -> bool:
        curve = values[figure, highest]
        return all(
            curve[x].mean() > values[figure, other][x].mean() for other in others for x in curve
        )

    return check


def _ends(figure: int, *series: str) -> Callable[[Values], str]:
    def told(values: Values) -> str:
        parts = []
        for name in series:
            curve = values[figure, name]
            low, high = min(curve), max(curve)
            parts.append(f"{name} {estimate(curve[low])} to {estimate(curve[high])}")
        sizes = values[figure, series[0]]
        return f"from {min(sizes):g} to {max(sizes):g} nodes: " + ", ".join(parts)

    return told


def _bounded(values: Values) -> bool:
    means = [float(found.mean()) for found in values[8, LEADER].values()]
    return max(means) <= BOUNDED * min(means)


def _near_gossip(values: Values) -> bool:
    curve = values[9, LEADER]
    return all(
        0 <= values[9, mode][x].mean() - found.mean() < CLOSE
        for mode in (PUSH, PULL)
        for x, found in curve.items()
    )


def _ordered(figure: int, text: str, *pairs: tuple[str, str], differs: str = "") -> Claim:
    return Claim(figure, text, _order(figure, *pairs), _differences(figure, *pairs), differs)


CLAIMS = (
    Claim(
        4,
        "the genetic algorithm's resiliency is very close to 1",
        lambda v: estimate(overall(v, 4, GENETIC)).mean > NEAR_ONE,
        _means(4, GENETIC),
    ),
    _ordered(4, "genetic more resilient than leader-follower", (GENETIC, LEADER)),
    _ordered(4, "leader-follower more resilient than non-cooperative", (LEADER, ALONE)),
    _ordered(4, "all much more resilient than best effort", (ALONE, BEST)),
    _ordered(5, "leader-follower faster than non-cooperative", (ALONE, LEADER)),
    _ordered(5, "genetic fastest of the three", (LEADER, GENETIC), (ALONE, GENETIC)),
    _ordered(6, "leader-follower has less overhead than non-cooperative", (ALONE, LEADER)),
    _ordered(
        6,
        "genetic has the least overhead of the three",
        (LEADER, GENETIC),
        (ALONE, GENETIC),
        differs="its cost makes what the root adds cheap: nobody pays for passing it on",
    ),
    Claim(
        7,
        "pull gossip is the slowest at every size",
        _most(7, PULL, (PUSH, LEADER, BEST)),
        _ends(7, PULL, LEADER, BEST),
    ),
    _ordered(7, "leader-follower is nearer to best effort than pull gossip", (PULL, LEADER)),
    Claim(
        8,
        "push gossip has by far the most overhead at every size",
        _most(8, PUSH, (PULL, LEADER, BEST)),
        _ends(8, PUSH, PULL, LEADER),
    ),
    Claim(
        8,
        "leader-follower's overhead is hardly changed by the size",
        _bounded,
        _ends(8, LEADER),
    ),
    Claim(
        9,
        "gossip is the most resilient, leader-follower close to it, best effort falls",
        lambda v: _near_gossip(v) and _most(9, LEADER, (BEST,))(v),
        _ends(9, PUSH, PULL, LEADER, BEST),
    ),
)
