"""The optimum on a tree, by dynamic programming from the leaves to the root.

Below a node, all that counts of what is above is how many repair packets s reach it. So

    f(i, s) = min( not a codec:  forward(i, s),
                   a codec:      opening + min over t >= s of  own(i, t - s) + forward(i, t) )
    forward(i, t) = [link load: t * children(i)] + sum over children j of f(j, t - lost(j))

with own(i, rho) = rho * children(i) under the paper's cost, and 0 under link load; infinite where
a child would get less than nothing. s is at most the worst way down from the root, and never above
what a code can tell apart, so the tables have N * (that + 1) entries, and a suffix minimum fills
each row: the problem that the paper calls hard in general takes linear time here.

Intuition: a node tells its parent not one wish but a price list, "this is what we cost you when s
survive", and the parent adds the lists of its children.

Source: Esposito 2018, (4), and its remark that the problem is polynomial on trees.
"""

import numpy as np

from lab.papers.codecs.plan import REPAIR_MAX, Charge, Plan, Problem, checked, needs
from lab.papers.codecs.tree import FloatArray, IntArray


def solve_exactly(problem: Problem) -> Plan:
    """A plan of least cost, with as few codecs as ties allow."""
    tree = problem.tree
    worst = int(needs(problem, np.zeros(len(tree), dtype=bool)).max(initial=0))
    width = min(worst, REPAIR_MAX) + 1
    raised = _choices(problem, width)
    codec = np.zeros(len(tree), dtype=bool)
    total = np.zeros(len(tree), dtype=np.int64)
    for depth, level in enumerate(tree.levels):
        nodes = tree.interior(level)
        if depth == 0:
            reaching = np.zeros(len(nodes), dtype=np.int64)
        else:
            reaching = total[tree.parent[nodes]] - problem.lost[nodes]
        total[nodes] = raised[nodes, reaching]
        codec[nodes] = (total[nodes] > reaching) | (depth == 0)
    return checked(problem, Plan(codec, total))


def _choices(problem: Problem, width: int) -> IntArray:
    """Best t of each node for each s, shape (N, width)."""
    tree = problem.tree
    counts = np.arange(width)
    best = np.tile(counts, (len(tree), 1))
    below: FloatArray = np.zeros((0, width))
    for depth in range(len(tree.levels) - 1, -1, -1):
        level = tree.levels[depth]
        forward = np.zeros((level.stop - level.start, width))
        nodes = tree.interior(level)
        if len(nodes):
            under = tree.levels[depth + 1]
            prices = _shifted(below, problem.lost[under])
            forward[nodes - level.start] = np.add.reduceat(
                prices, tree.first_child[nodes] - under.start, axis=0
            )
        below = forward
        if len(nodes):
            below, best[level] = _decided(problem, level, forward, opening=depth > 0)
    return best


def _shifted(prices: FloatArray, lost: IntArray) -> FloatArray:
    """Price lists by what is sent instead of what arrives."""
    width = prices.shape[1]
    arriving = np.arange(width)[None, :] - lost[:, None]
    taken = np.take_along_axis(prices, np.maximum(arriving, 0), axis=1)
    return np.where(arriving < 0, np.inf, taken)


def _decided(
    problem: Problem, level: slice, forward: FloatArray, *, opening: bool
) -> tuple[FloatArray, IntArray]:
    """f, and the t behind it, for all nodes of one level."""
    counts = np.arange(forward.shape[1])
    rate = problem.tree.children[level, None].astype(np.float64)
    carried = forward + rate * counts
    least = np.minimum.accumulate(carried[:, ::-1], axis=1)[:, ::-1]
    # The smallest t that reaches the least: the last place, from the right, where it changed.
    here = np.where(carried == least, counts, forward.shape[1])
    place = np.minimum.accumulate(here[:, ::-1], axis=1)[:, ::-1]
    if problem.charge is Charge.PAPER:
        keep, code = forward, least - rate * counts
    else:
        keep, code = carried, least
    code = code + (problem.opening if opening else 0.0)
    coded = (code < keep) & (problem.tree.children[level, None] > 0)
    return np.where(coded, code, keep), np.where(coded, place, counts)
