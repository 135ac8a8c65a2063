"""The planned trees that pass one broker: who gets a flow by a tree, and who the ordinary way.

A frame of a planned flow names its tree by a key, beside the keys of its filters and destinations.
Its copies along the tree bear the tree's bit in their masks and no destination's. So whoever cannot
go on with the tree, because a child cannot be reached or the tree is not known, sends on for the
destinations behind it the ordinary way: their bits were taken on by nobody yet. And it tells who
brought the frame that the tree is **torn** there, which then does the same one hop earlier, and so
on up to the origin. A tear is forgotten after a while, and the tree tried again.

Source: docs/protocol.md 18.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from federator.protocol.bounded_cache import Recent
from federator.protocol.messages.destinations import tree_key
from federator.protocol.messages.steering import Tree, below, children_of, parents_of, tree_number
from federator.protocol.types import BrokerId, Millis

FORMER_MAX: Final = 256
"""Trees no longer followed by which frames under way go on: our neighbours may hear of it later,
and what is in a queue must not overtake what went out of it."""

TORN_MS: Final = Millis(10_000)
"""How long a torn branch is not tried again."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A planned tree as one of its brokers sees it."""

    origin: BrokerId
    filters: tuple[str, ...]
    parent: BrokerId | None  # ``None`` at the origin
    # The brokers in the subtree of each child, the child among them.
    below: Mapping[BrokerId, frozenset[BrokerId]]


class Steps(NamedTuple):
    """What one broker of a tree does with a frame."""

    children: tuple[BrokerId, ...]  # who gets it by the tree
    left: frozenset[BrokerId]  # destinations that this does not reach


def branch_of(tree: Tree, broker: BrokerId) -> Branch:
    """``tree`` as ``broker`` sees it.

    Raises:
        ValueError: It is no tree, or ``broker`` has nothing to do with it.
    """
    parents = parents_of(tree)
    if broker != tree.origin and broker not in parents:
        raise ValueError(f"broker {broker} is not in it")
    children = children_of(tree)
    subtrees = {child: below(children, child) | {child} for child in children.get(broker, ())}
    return Branch(tree.origin, tree.filters, parents.get(broker), subtrees)


class TreeTable:
    """The trees of one broker, and which of their branches hold."""

    def __init__(self) -> None:
        self._trees: dict[bytes, Branch] = {}
        self._former: Recent[bytes, Branch] = Recent(FORMER_MAX)
        self._own: dict[tuple[str, ...], bytes] = {}
        self._reachable: set[BrokerId] = set()
        self._torn: dict[tuple[bytes, BrokerId], Millis] = {}  # until when

    def __len__(self) -> int:
        return len(self._trees)

    def replace(self, trees: Iterable[Tree], self_id: BrokerId) -> bool:
        """Follow exactly ``trees``; whether that is a change. Tears of those that stay, stay.

        Raises:
            ValueError: One of them is no tree, or does not pass us.
        """
        table = {tree_key(tree_number(tree)): branch_of(tree, self_id) for tree in trees}
        if table == self._trees:
            return False
        for key, branch in self._trees.items():
            if key not in table:
                self._former.put(key, branch)
        for key in table:
            self._former.pop(key, None)
        self._trees = table
        self._own = {b.filters: key for key, b in sorted(table.items()) if b.origin == self_id}
        self._torn = {torn: until for torn, until in self._torn.items() if torn[0] in table}
        return True

    @property
    def known(self) -> int:
        """How many trees are known, with those that are no longer followed."""
        return len(self._trees) + len(self._former)

    @property
    def own(self) -> frozenset[tuple[str, ...]]:
        """The flows of our clients that have trees."""
        return frozenset(self._own)

    def reach(self, neighbour: BrokerId, up: bool) -> None:
        """Whether ``neighbour`` can be reached."""
        (self._reachable.add if up else self._reachable.discard)(neighbour)

    def tear(self, key: bytes, child: BrokerId, now_ms: Millis) -> bool:
        """``child`` says that the tree does not hold there; whether it was thought to hold."""
        branch = self._trees.get(key)
        if branch is None or child not in branch.below or child not in self._reachable:
            return False
        known = (key, child) in self._torn
        self._torn[key, child] = Millis(now_ms + TORN_MS)
        return not known

    def mend(self, now_ms: Millis) -> bool:
        """Forget tears that are old; whether there were any."""
        old = [torn for torn, until_ms in self._torn.items() if until_ms <= now_ms]
        for torn in old:
            del self._torn[torn]
        return bool(old)

    @property
    def due_ms(self) -> Millis | None:
        """When ``mend`` has something to do."""
        return min(self._torn.values(), default=None)

    @property
    def torn(self) -> int:
        """How many branches do not hold."""
        return len(self._torn)

    def branch(self, key: bytes) -> Branch | None:
        """The tree with that key, be it one that is no longer followed."""
        return self._trees.get(key) or self._former.get(key)

    def of_flow(self, filters: Iterable[str]) -> bytes:
        """The key of the tree for what our clients publish that exactly ``filters`` match; empty
        when there is none.
        """
        return self._own.get(tuple(sorted(filters)), b"") if self._own else b""

    def steps(
        self, key: bytes, destinations: frozenset[BrokerId], *, origin: BrokerId | None = None
    ) -> Steps:
        """What we do with a frame for ``destinations`` by the tree with that key.

        ``origin`` is who made the frame, when that was not us. At the origin all that the tree does
        not reach is left; further down only what was to be reached by us, or, when we do not know
        the tree, everything.
        """
        branch = self.branch(key)
        if branch is None or origin not in (None, branch.origin):
            return Steps((), destinations)
        children: list[BrokerId] = []
        left = destinations if origin is None else frozenset[BrokerId]()
        for child, brokers in branch.below.items():
            if wanted := brokers & destinations:
                if child in self._reachable and (key, child) not in self._torn:
                    children.append(child)
                    left -= wanted
                else:
                    left |= wanted
        return Steps(tuple(children), left)
