"""Codecs elected by complaints: the algorithm of Wu and Radha, [31] of the paper.

Who cannot decode says how many packets were missing (NACK). A node that can decode and hears more
than ``THRESHOLD`` children, sigma, complain becomes a codec and adds what the worst of them lacks;
with fewer it asks its codec for more. Who gets more than anyone below it needs says so, and its
codec adds less (UPDATE with a negative length). It counts complaints, not redundancy: no optimum.

A round here is one message down the tree and all that is said about it.

Source: Esposito 2018, 3.2; M. Wu, H. Radha (2006).
"""

import numpy as np

from lab.papers.codecs.plan import REPAIR_MAX, Plan, Problem, surviving
from lab.papers.codecs.tree import ROOT, BoolArray, IntArray

ROUNDS_MAX = 1000
THRESHOLD = 1


def complain(problem: Problem) -> tuple[Plan, int]:
    """The placement when nobody has anything to say any more, and the rounds it took."""
    tree = problem.tree
    codec = np.zeros(len(tree), dtype=bool)
    adding = np.zeros(len(tree), dtype=np.int64)
    for rounds in range(1, ROUNDS_MAX + 1):
        total = _sent(problem, codec, adding)
        here = surviving(problem, total)
        complained = _complaints(problem, codec, adding, here)
        if not (complained or _waste(problem, adding, here)):
            return Plan(codec, total), rounds
    return Plan(codec, _sent(problem, codec, adding)), ROUNDS_MAX


def _sent(problem: Problem, codec: BoolArray, adding: IntArray) -> IntArray:
    """t, below 0 where packets of the message itself are missing."""
    tree = problem.tree
    total = np.where(codec, adding, 0)
    for level in tree.levels[1:]:
        here = total[tree.parent[level]] - problem.lost[level]
        raised = here + np.where(here >= 0, total[level], 0)
        total[level] = np.where(tree.children[level] > 0, raised, 0)
    return total


def _complaints(problem: Problem, codec: BoolArray, adding: IntArray, here: IntArray) -> bool:
    """Elect and raise; whether anybody complained to a node that can do something about it."""
    tree = problem.tree
    unreached = np.zeros(len(tree), dtype=np.int64)
    lacking = np.zeros(len(tree), dtype=np.int64)
    for node in (np.flatnonzero(here[tree.roots :] < 0) + tree.roots).tolist():
        above = tree.parent[node]
        unreached[above] += 1
        lacking[above] = max(lacking[above], -here[node])
    more = np.zeros_like(adding)
    for node in np.flatnonzero((unreached > 0) & (here >= 0)).tolist():
        if not codec[node] and (unreached[node] > THRESHOLD or tree.parent[node] == ROOT):
            codec[node] = True
        asked = node
        while not codec[asked] and tree.parent[asked] != ROOT:
            asked = int(tree.parent[asked])
        codec[asked] = True
        more[asked] = max(more[asked], lacking[node])
    np.minimum(adding + more, REPAIR_MAX, out=adding)
    return bool(more.any())


def _waste(problem: Problem, adding: IntArray, here: IntArray) -> bool:
    """Take back what nobody needs; whether there was any."""
    tree = problem.tree
    spare = np.maximum(here, 0)
    took = False
    for depth in range(len(tree.levels) - 2, -1, -1):
        nodes, below = tree.interior(tree.levels[depth]), tree.levels[depth + 1]
        least = np.minimum.reduceat(spare[below], tree.first_child[nodes] - below.start)
        back = np.minimum(adding[nodes], least)
        adding[nodes] -= back
        took = took or bool(back.any())
        spare[nodes] = np.minimum(spare[nodes], least - back)
    return took
