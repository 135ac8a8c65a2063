"""How many requests must stay unmet, proven: where more is wanted than links can carry.

A penalty is dearer than all real cost, so a bound on cost says little there: the relaxation leaves
unmet a part of a request where a whole one must be, and prices that weigh paths against each other
are far too low to weigh them against penalties. So the question is asked by itself first: with
paths that cost nothing and penalties of 1, the optimum is a whole number, and a bound of 2.1 proves
3. A bound on cost may then count on so many penalties (``Relaxation.unmet_least``).

Shares that are equal prove next to nothing of this, so it is asked where fitted ones can be had.
"""

import math
from dataclasses import replace

import numpy as np

from federator.planner.flow.instance import TOLERANCE, Instance
from federator.planner.flow.shortest_paths import ShortestPaths
from federator.planner.flow.watch import Watch
from federator.planner.lagrangian import steps
from federator.planner.lagrangian.relaxation import Relaxation

ROUNDS = 100


def unmet_least(instance: Instance, paths: ShortestPaths, *, known: int, watch: Watch) -> int:
    """A number of requests that every routing leaves unmet.

    Some routing leaves ``known``: the search ends when so many are proven, or time is over.
    """
    asked = replace(instance, cost=np.zeros(instance.arcs), unmet_penalty=1.0)
    relaxation = Relaxation(asked, paths, fitted=True)
    # Not zero: all paths would be equally short. So that the tolls of all links are worth serving
    # everybody, which is the size of prices in the end.
    price = instance.requests / max(float(instance.capacity.sum()), TOLERANCE)
    prices = np.full(len(instance.capacity), price)
    rule = steps.Polyak()
    least = 0
    for _ in range(ROUNDS):
        relaxed = relaxation.solve(prices, stop=watch.over)
        if relaxed is None:
            break
        least = max(least, math.ceil(relaxed.bound - TOLERANCE))
        if least >= known:
            break
        prices = rule.step(prices, relaxed.slope, bound=relaxed.bound, target=known)
    return least
