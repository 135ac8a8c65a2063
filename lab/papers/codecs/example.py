"""Figure 2: eleven nodes, two placements of the paper, and what is really best.

The text gives 35 = 3x3 + 6x2 + 1x2 + 4x3 for [31] and 31 = 4x3 + 5x2 + 3x3 for "improved", but the
figure's losses are not in the text. These are ones that give just that: the edge to node 1 loses 2,
its worst leaf 7; node 2's edge and worst leaf 4 together, node 3's 7; the root's worst edge 3.

Source: Esposito 2018, 3.2, Table 1; docs/codecs.md 2.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lab.papers.codecs.exact import solve_exactly
from lab.papers.codecs.nack import complain
from lab.papers.codecs.plan import Charge, Plan, Problem, added, cost, with_codecs
from lab.papers.codecs.tree import Tree

PARENTS = (-1, 0, 0, 0, 1, 1, 2, 2, 3, 3, 3)
LOST = (0, 2, 1, 3, 7, 5, 3, 3, 4, 2, 1)
IMPROVED = (0, 1, 3)
OPENING = 7.0
"""The paper's, "equal to the maximum loss pattern"; its sums 35 and 31 leave it out."""


class Told(NamedTuple):
    """One placement."""

    name: str  # whose
    added: tuple[int, ...]  # by root and nodes 1 to 3
    paper: float  # cost, the paper's
    link_load: float  # cost, every link counted
    codecs: int  # beside the root; each would cost ``OPENING`` more


def problem(charge: Charge = Charge.PAPER, *, opening: float = 0.0) -> Problem:
    tree = Tree(np.array(PARENTS, dtype=np.int64))
    return Problem(tree, np.array(LOST, dtype=np.int64), opening, charge)


def placements() -> Iterator[Told]:
    plain = problem()
    yield _told("[31]", complain(plain)[0])
    improved = np.isin(np.arange(len(PARENTS)), IMPROVED)
    yield _told("improved", with_codecs(plain, improved))
    for charge in Charge:
        for opening in (0.0, OPENING):
            plus = f", opening {opening:g}" if opening else ""
            found = solve_exactly(problem(charge, opening=opening))
            yield _told(f"best by {charge.value} cost{plus}", found)


def _told(name: str, plan: Plan) -> Told:
    plain = problem()
    return Told(
        name,
        tuple(added(plain, plan)[:4].tolist()),
        cost(plain, plan, Charge.PAPER),
        cost(plain, plan, Charge.LINK_LOAD),
        int(plan.codec[1:].sum()),
    )
