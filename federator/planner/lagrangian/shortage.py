"""How many requests must stay unmet, proven: where links cannot carry all that is wanted.

A penalty is dearer than all real cost, so a bound on cost shows little there: the relaxation leaves
a part of a request unmet where a whole one must be, and prices that compare paths are far too low
to compare paths with penalties. So this problem is solved separately first: with paths that cost
nothing and penalties of 1, the optimum is a whole number, and a bound of 2.1 proves 3. A bound on
cost may then add as many penalties (``Relaxation.unmet_least``).

Equal shares prove next to nothing of this, so it is solved only where shares can be fitted.
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


def unmet_least(instance: Instance, paths: ShortestPaths, *, most: int, watch: Watch) -> int:
    """A number of requests that every routing leaves unmet.

    Some routing leaves ``most`` unmet: the search ends when as many are proven, or time is over.
    """
    asked = replace(instance, cost=np.zeros(instance.arcs), unmet_penalty=1.0)
    relaxation = Relaxation(asked, paths, fitted=True)
    # Not zero: all paths would be equally short. At this price the tolls of all links equal the
    # penalties of all requests, which is the size of prices in the end.
    price = instance.requests / max(float(instance.capacity.sum()), TOLERANCE)
    prices = np.full(len(instance.capacity), price)
    rule = steps.Polyak()
    least = 0
    for _ in range(ROUNDS):
        relaxed = relaxation.solve(prices, stop=watch.over)
        if relaxed is None:
            break
        least = max(least, math.ceil(relaxed.bound - TOLERANCE))
        if least >= most:
            break
        prices = rule.step(prices, relaxed.slope, bound=relaxed.bound, target=most)
    return least
