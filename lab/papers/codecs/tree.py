"""Multicast trees as arrays, in an order that lets whole levels be computed at once.

Nodes are numbered breadth first, so each level is a slice and the children of a node lie side by
side: a maximum or a sum over children is one ``reduceat``. A **forest** is a tree with several
roots: runs of many seeds are computed as one.

Source: Esposito 2018, 2 and 4.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from federator.errors import FederatorError

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]

ROOT = -1  # parent of a root

FANOUT_MAX = 4  # children of a node in random trees; the paper does not say


class CodecError(FederatorError):
    """A tree, a loss or a plan makes no sense."""


@dataclass(frozen=True, eq=False)
class Tree:
    """A tree, or a forest, numbered breadth first. Raises ``CodecError``: it is not numbered so."""

    parent: IntArray  # of each node, shape (N,); -1 for roots, which come first. Never falls.
    children: IntArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        parent = self.parent
        roots = int((parent == ROOT).sum())
        numbered = np.arange(len(parent))
        if roots == 0 or (np.diff(parent) < 0).any() or (parent >= numbered).any():
            raise CodecError("parent: want roots (-1) first, then never falling, each above")
        if (parent < ROOT).any():
            raise CodecError(f"parent: want -1 or a node, got {parent.min()}")
        counts = np.bincount(parent[roots:], minlength=len(parent)).astype(np.int64)
        object.__setattr__(self, "children", counts)

    def __len__(self) -> int:
        return len(self.parent)

    @property
    def roots(self) -> int:
        return int(self.levels[0].stop)

    @cached_property
    def levels(self) -> tuple[slice, ...]:
        found = [slice(0, int((self.parent == ROOT).sum()))]
        while (stop := found[-1].stop) < len(self):
            last = int(np.searchsorted(self.parent, stop, side="left"))
            found.append(slice(stop, last))
        return tuple(found)

    @cached_property
    def root(self) -> IntArray:
        found = np.arange(len(self))
        for level in self.levels[1:]:
            found[level] = found[self.parent[level]]
        return found

    @cached_property
    def first_child(self) -> IntArray:
        """Shape (N,); meaningless for leaves."""
        found: IntArray = np.cumsum(self.children) - self.children + self.roots
        return found

    def interior(self, level: slice) -> IntArray:
        found: IntArray = level.start + np.flatnonzero(self.children[level])
        return found


def arranged(parents: Sequence[int]) -> tuple[Tree, IntArray]:
    """The tree, and for each new number the old one.

    ``parents`` are of each node, in any order; -1 for roots. Raises ``CodecError``: there is a
    cycle, no root, or a parent that is no node.
    """
    kids: list[list[int]] = [[] for _ in parents]
    order = [node for node, parent in enumerate(parents) if parent == ROOT]
    for node, parent in enumerate(parents):
        if not ROOT <= parent < len(parents):
            raise CodecError(f"node {node}: want a parent of 0 to {len(parents) - 1}, got {parent}")
        if parent != ROOT:
            kids[parent].append(node)
    for node in order:
        order += kids[node]
    if len(order) < len(parents) or not order:
        raise CodecError("nodes without a way from a root: want a tree")
    number = {old: new for new, old in enumerate(order)}
    above = [ROOT if parents[old] == ROOT else number[parents[old]] for old in order]
    return Tree(np.array(above, dtype=np.int64)), np.array(order, dtype=np.int64)


def random_tree(nodes: int, rng: np.random.Generator, *, fanout_max: int = FANOUT_MAX) -> Tree:
    """Each node joins below a random earlier one that has room."""
    parents = [ROOT]
    room = [fanout_max]
    open_nodes = [0]
    for node in range(1, nodes):
        place = int(rng.integers(len(open_nodes)))
        above = open_nodes[place]
        parents.append(above)
        room.append(fanout_max)
        room[above] -= 1
        if room[above] == 0:
            open_nodes[place] = open_nodes[-1]
            open_nodes.pop()
        open_nodes.append(node)
    return arranged(parents)[0]


def forest(trees: Sequence[Tree]) -> tuple[Tree, IntArray]:
    """All ``trees`` as one; and for each node of it, the row in their concatenation."""
    offsets = np.cumsum([0, *(len(tree) for tree in trees)])
    pairs = zip(trees, offsets, strict=False)
    shifted = [np.where(tree.parent == ROOT, ROOT, tree.parent + at) for tree, at in pairs]
    return arranged(np.concatenate(shifted).tolist())
