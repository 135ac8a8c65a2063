"""Small random problems, and a way to solve them without thinking."""

import itertools

import numpy as np

from lab.papers.codecs.plan import Charge, Plan, Problem, cost
from lab.papers.codecs.tree import random_tree


def random_problem(seed, *, nodes, lost_max=7, opening=None, charge=Charge.PAPER, fanout_max=4):
    rng = np.random.default_rng(seed)
    tree = random_tree(nodes, rng, fanout_max=fanout_max)
    lost = np.where(tree.parent < 0, 0, rng.integers(0, lost_max + 1, nodes))
    return Problem(tree, lost, float(rng.integers(0, 12)) if opening is None else opening, charge)


def least_cost(problem):
    """Every amount at every node, whether or not (3) would ask for it."""
    tree = problem.tree
    inside = np.flatnonzero(tree.children).tolist()
    most = _worst_way(problem)
    best = np.inf
    for amounts in itertools.product(range(most + 1), repeat=len(inside)):
        total = np.zeros(len(tree), dtype=np.int64)
        total[inside] = amounts
        here = np.zeros(len(tree), dtype=np.int64)
        for node in range(1, len(tree)):
            here[node] = total[tree.parent[node]] - problem.lost[node]
        if (here < 0).any() or any(total[node] < here[node] for node in inside):
            continue
        codec = np.array([node == 0 or bool(total[node] > here[node]) for node in range(len(tree))])
        codec &= tree.children > 0
        best = min(best, cost(problem, Plan(codec, total)))
    return best


def _worst_way(problem):
    found = np.zeros(len(problem.tree), dtype=np.int64)
    for node in range(1, len(problem.tree)):
        found[node] = found[problem.tree.parent[node]] + problem.lost[node]
    return int(found.max())
