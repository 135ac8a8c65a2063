"""How far each scheme's plan is from the exact optimum, under both costs.

The paper lacks this yardstick: its genetic algorithm is the "upper bound". Two kinds of losses:
alike on every link, as in the paper's experiments, and uneven ones, 0 to 7 as in its Figure 2.

Source: Esposito 2018, 3.1; docs/codecs.md.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from lab.papers.codecs.figures import Setting, problem_of, trees
from lab.papers.codecs.plan import Charge, Problem, cost
from lab.papers.codecs.schemes import Scheme, decide
from lab.papers.codecs.tree import Tree

UNEVEN_MAX = 7
SIZES = (40, 400)  # the genetic algorithm needs half a minute for one tree of 10,000

COMPARED = tuple(scheme for scheme in Scheme if scheme is not Scheme.BEST_EFFORT)


class Ratio(NamedTuple):
    """One scheme's cost as a multiple of the least possible."""

    nodes: int
    losses: str
    charge: Charge
    scheme: Scheme
    seed: int
    ratio: float


def distances(setting: Setting, sizes: tuple[int, ...] = SIZES) -> Iterator[Ratio]:
    """The cost of every scheme that adds enough; 1 is the optimum."""
    for nodes in sizes:
        for seed, tree in enumerate(trees(setting, nodes)):
            for losses, base in _problems(setting, tree, seed).items():
                for charge in Charge:
                    problem = Problem(tree, base.lost, base.opening, charge)
                    yield from _ratios(problem, losses, seed)


def _problems(setting: Setting, tree: Tree, seed: int) -> Mapping[str, Problem]:
    rng = np.random.default_rng([seed, len(tree), 1])
    uneven = np.where(tree.parent < 0, 0, rng.integers(0, UNEVEN_MAX + 1, len(tree)))
    return {"alike": problem_of(setting, tree), "uneven": Problem(tree, uneven, setting.opening)}


def _ratios(problem: Problem, losses: str, seed: int) -> Iterator[Ratio]:
    rng = np.random.default_rng([seed, len(problem.tree), 2])
    least = cost(problem, decide(Scheme.EXACT, problem, rng))
    for scheme in COMPARED:
        ratio = cost(problem, decide(scheme, problem, rng)) / least if least else 1.0
        yield Ratio(len(problem.tree), losses, problem.charge, scheme, seed, ratio)
