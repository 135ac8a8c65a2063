"""A compact index of many filters, by topic and by overlap.

The filters form a tree of their levels, so a topic is compared with the few branches it can match
(its own level, ``+``, ``#``), not with every filter. Most filters are alone below some level: the
tree ends there with the filter itself, and branches only where two filters differ. So a filter
costs about one dictionary entry, and removing one folds its branches back.

Source: lazy expansion in V. Leis and others, "The Adaptive Radix Tree", ICDE 2013, section III.E.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final, TypeAlias

from federator.protocol.filters.algebra import (
    contains,
    levels_match,
    levels_of,
    levels_overlap,
)
from federator.protocol.filters.sparse import is_sparse

Node: TypeAlias = dict[str, "str | Node"]
"""A dictionary from level to the only filter below, or to the branches below; from ``END`` to the
filter that ends here."""

END: Final = "/"
"""No level contains a slash."""

LEVELS_REMEMBERED: Final = 1_024
"""Recently added filters: several tries get the same ones one after the other, and share the
strings of their levels, which need more memory than all else of a trie."""


class FilterTrie:
    """A set of valid filters (no ``$share``) that finds those that match a topic."""

    __slots__ = ("_count", "_root")

    def __init__(self) -> None:
        self._root: Node = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, filter: str) -> bool:
        node: Node = self._root
        for level in filter.split("/"):
            child = node.get(level)
            if child is None or isinstance(child, str):
                return child == filter
            node = child
        return END in node

    def __iter__(self) -> Iterator[str]:
        """Iterate over all filters, in no stable order."""
        return _filters_below(self._root)

    def add(self, filter: str) -> bool:
        """Add ``filter``; return whether it is new."""
        node = self._root
        for depth, level in enumerate(levels_to_keep(filter)):
            child = node.get(level)
            if child is None:
                node[level] = filter
                break
            if isinstance(child, str):
                if child == filter:
                    return False
                node[level] = _parting(child, filter, depth + 1)
                break
            node = child
        self._count += 1
        return True

    def discard(self, filter: str) -> bool:
        """Remove ``filter``; return whether it was there."""
        path: list[tuple[Node, str]] = []
        node = self._root
        for level in [*filter.split("/"), END]:
            path.append((node, level))
            child = node.get(level)
            if child is None or isinstance(child, str):
                if child != filter:
                    return False
                break
            node = child
        node, key = path.pop()
        del node[key]
        self._count -= 1
        self._fold(node, path)
        return True

    def match(self, topic: str) -> list[str]:
        """Return all filters that match ``topic``, sorted."""
        if "+" in topic or "#" in topic:
            return []
        levels = topic.split("/")
        ends = len(levels)
        matching: list[str] = []
        waiting: list[tuple[Node, int]] = [(self._root, 0)]
        while waiting:
            node, depth = waiting.pop()
            keys = (levels[depth], "+", "#") if depth < ends else (END, "#")
            for key in keys[:1] if depth == 0 and topic[:1] == "$" else keys:
                child = node.get(key)
                if child is None:
                    continue
                if not isinstance(child, str):
                    waiting.append((child, depth + 1))
                elif child == topic or levels_match(child.split("/"), levels, depth):
                    matching.append(child)
        matching.sort()
        return matching

    def overlapping(self, filter: str) -> list[str]:
        """Return all filters that have a topic in common with ``filter``, sorted.

        A filter without wildcards costs as much as a topic; each ``+`` costs a walk through all
        branches of a level.
        """
        return sorted(self._overlapping(filter))

    def overlaps(self, filter: str) -> bool:
        """Whether any filter has a topic in common with ``filter``: stops at the first."""
        return next(self._overlapping(filter), None) is not None

    def containing(self, filter: str) -> str | None:
        """Return a filter that matches every topic that ``filter`` matches, if there is any.

        Costs as much as a topic, whatever ``filter`` is.
        """
        levels = [*levels_of(filter), END]
        waiting: list[tuple[Node, int]] = [(self._root, 0)]
        while waiting:
            node, depth = waiting.pop()
            for key in dict.fromkeys((levels[depth], "+", "#")):
                child = node.get(key)
                if isinstance(child, str):
                    if contains(child, filter):
                        return child
                elif child is not None and depth + 1 < len(levels):
                    waiting.append((child, depth + 1))
        return None

    def _overlapping(self, filter: str) -> Iterator[str]:
        levels = levels_of(filter)
        ends = len(levels)
        waiting: list[tuple[Node, int]] = [(self._root, 0)]
        while waiting:
            node, depth = waiting.pop()
            for key in _keys_overlapping(node, levels[depth] if depth < ends else END, depth):
                child = node.get(key)
                if child is None:
                    continue
                if not isinstance(child, str):
                    if depth < ends and levels[depth] == "#":
                        yield from _filters_below(child)
                    else:
                        waiting.append((child, depth + 1))
                elif levels_overlap(levels_of(child), levels, depth):
                    yield child

    def _fold(self, node: Node, path: list[tuple[Node, str]]) -> None:
        """Replace branches that lead to one filter by that filter, and free memory."""
        while path and len(node) == 1:
            (only,) = node.values()
            if not isinstance(only, str):
                break
            node, key = path.pop()
            node[key] = only
        if is_sparse(node):
            if path:
                parent, key = path.pop()
                parent[key] = dict(node)
            else:
                self._root = dict(node)


@lru_cache(maxsize=LEVELS_REMEMBERED)
def levels_to_keep(filter: str) -> tuple[str, ...]:
    """The levels of ``filter`` and its end; recent callers share the same strings."""
    return (*filter.split("/"), END)


def _parting(a: str, b: str, depth: int) -> Node:
    """Return the branches, from level ``depth`` on, that lead to two filters alike above it."""
    top: Node = {}
    node = top
    for x, y in zip(levels_to_keep(a)[depth:], levels_to_keep(b)[depth:], strict=False):
        if x != y:
            node[x], node[y] = a, b
            break
        below: Node = {}
        node[x] = below
        node = below
    return top


def _keys_overlapping(node: Node, level: str, depth: int) -> list[str] | tuple[str, ...]:
    """Return the keys of ``node`` where filters may overlap a path that continues with ``level``.

    ``END`` as ``level`` means that the path ended above.
    """
    if level == "+" or level == "#":
        return [key for key in node if depth > 0 or key[:1] != "$"]
    if level == END:
        return (END, "#")
    if depth == 0 and level[:1] == "$":
        return (level,)
    return (level, "+", "#")


def _filters_below(node: Node) -> Iterator[str]:
    waiting = [node]
    while waiting:
        for child in waiting.pop().values():
            if isinstance(child, str):
                yield child
            else:
                waiting.append(child)
