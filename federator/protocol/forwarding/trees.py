"""The planned trees that pass one broker: what goes by a tree, and what by ordinary routes.

A frame of a planned flow names its tree by a key, beside the keys of its filters and destinations.
Its copies along the tree have the tree's bit in their masks and no destination's. So a broker that
cannot go on with the tree, because a child cannot be reached or the tree is not known, forwards to
the destinations behind it by ordinary routes: no copy has taken on their bits yet. It also reports
to the neighbour that sent the frame that the tree is **torn** there. That neighbour then does the
same one hop earlier, and so on up to the origin. After a while a tear is forgotten, and the tree is
tried again.

Source: docs/protocol.md 18.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from federator.protocol.bounded_cache import Recent
from federator.protocol.forwarding.frames import keys_in
from federator.protocol.messages.destinations import (
    destinations_in,
    is_tree_key,
    positions_of,
    tree_key,
)
from federator.protocol.messages.steering import Tree, below, children_of, parents_of, tree_number
from federator.protocol.types import BrokerId, Millis

FORMER_MAX: Final = 256
"""Trees that are no longer followed stay usable for frames under way: our neighbours may learn of
the change later, and frames in a queue must not be overtaken by those after them.
"""

TORN_MS: Final = Millis(10_000)
"""For how long a torn branch is not tried again."""


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

    children: tuple[BrokerId, ...]  # the children that get it by the tree
    left: frozenset[BrokerId]  # destinations that they do not reach


def branch_of(tree: Tree, broker: BrokerId) -> Branch:
    """``tree`` as ``broker`` sees it.

    Raises:
        ValueError: It is no tree, or ``broker`` is not in it.
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

    def follows(self, trees: Iterable[Tree], self_id: BrokerId) -> bool:
        """Whether exactly ``trees`` are followed now. Raises as ``replace``."""
        return _branches(trees, self_id) == self._trees

    def replace(self, trees: Iterable[Tree], self_id: BrokerId) -> bool:
        """Follow exactly ``trees``; return whether that is a change. Tears of remaining trees stay.

        Raises:
            ValueError: One of them is no tree, or does not pass us.
        """
        table = _branches(trees, self_id)
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
        """How many trees are known, including those that are no longer followed."""
        return len(self._trees) + len(self._former)

    @property
    def own(self) -> frozenset[tuple[str, ...]]:
        """The flows of our clients that have trees."""
        return frozenset(self._own)

    def reach(self, neighbour: BrokerId, up: bool) -> None:
        """Record whether ``neighbour`` can be reached."""
        (self._reachable.add if up else self._reachable.discard)(neighbour)

    def tear(self, key: bytes, child: BrokerId, now_ms: Millis) -> bool:
        """Record that the tree does not hold at ``child``; return whether that is new."""
        branch = self._trees.get(key)
        if branch is None or child not in branch.below or child not in self._reachable:
            return False
        is_torn = (key, child) in self._torn
        self._torn[key, child] = Millis(now_ms + TORN_MS)
        return not is_torn

    def mend(self, now_ms: Millis) -> bool:
        """Forget old tears; return whether there were any."""
        old = [torn for torn, until_ms in self._torn.items() if until_ms <= now_ms]
        for torn in old:
            del self._torn[torn]
        return bool(old)

    @property
    def due_ms(self) -> Millis | None:
        return min(self._torn.values(), default=None)

    @property
    def torn(self) -> int:
        """How many branches do not hold."""
        return len(self._torn)

    def branch(self, key: bytes) -> Branch | None:
        """The tree with that key, even if it is no longer followed."""
        return self._trees.get(key) or self._former.get(key)

    def beyond(self, keys: bytes, mask: int) -> int:
        """The part of ``mask`` for which we must still forward our own frame, which came back.

        A broker that does not know the tree sends to all destinations the ordinary way, also to
        those to which we sent it the ordinary way at first.
        """
        for key in filter(is_tree_key, keys_in(keys)):
            if (branch := self.branch(key)) is not None:
                left = destinations_in(keys).difference(*branch.below.values())
                mask &= ~positions_of(left, keys)
        return mask

    def of_flow(self, filters: Iterable[str]) -> bytes:
        """The key of the tree for our clients' flow with exactly ``filters``; empty without one."""
        return self._own.get(tuple(sorted(filters)), b"") if self._own else b""

    def steps(
        self, key: bytes, destinations: frozenset[BrokerId], *, origin: BrokerId | None = None
    ) -> Steps:
        """What we do with a frame for ``destinations`` by the tree with that key.

        ``origin`` is the broker that made the frame, if not us. At the origin all destinations that
        the tree does not reach are left; further down only those that we were to reach, or, if we
        do not know the tree, all of them.
        """
        branch = self.branch(key)
        if branch is None or origin not in (None, branch.origin):
            return Steps((), destinations)
        children: list[BrokerId] = []
        left = destinations if origin is None else frozenset[BrokerId]()
        for child, brokers in branch.below.items():
            if behind := brokers & destinations:
                if child in self._reachable and (key, child) not in self._torn:
                    children.append(child)
                    left -= behind
                else:
                    left |= behind
        return Steps(tuple(children), left)


def _branches(trees: Iterable[Tree], broker: BrokerId) -> dict[bytes, Branch]:
    """``trees`` as ``broker`` sees them, by their keys in frames."""
    return {tree_key(tree_number(tree)): branch_of(tree, broker) for tree in trees}
