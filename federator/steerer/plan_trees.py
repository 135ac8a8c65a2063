"""The trees of plans: all of them, and those of one broker's plan."""

from collections.abc import Iterable

from federator.protocol.messages.steering import TREES_MAX, Plan, Tree, passes
from federator.protocol.types import BrokerId


def trees_of(plans: Iterable[Plan]) -> list[Tree]:
    """All trees of ``plans``, each once."""
    trees = {(tree.origin, tree.filters): tree for plan in plans for tree in plan.trees}
    return [tree for _, tree in sorted(trees.items())]


def trees_at(broker: BrokerId, trees: tuple[Tree, ...]) -> tuple[Tree, ...]:
    """The trees that pass ``broker``."""
    return tuple(tree for tree in trees if passes(tree, broker))[:TREES_MAX]
