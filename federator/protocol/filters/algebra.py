"""Filters as sets of topics: matching, containment, overlap, and the least filter around two.

A filter stands for the set of topics it matches. Matching walks both paths level by level: ``a/#``
matches ``a`` too, and a leading wildcard never matches a topic that starts with ``$``.

Ordered by containment, any two filters have a least one that contains both, their join. Joining
``a/+`` and ``+/b`` gives ``+/+``. Where one path ends before the other only ``#`` can follow, and
it matches the level above it too: ``a`` and ``a/b`` join to ``a/#``.

There is no empty topic, so a ``#`` that need not match it can be written ``+/#``: ``#`` and ``+/#``
are two names of one set, and so are ``/#`` and ``/+/#``; no others are. ``/#`` and ``+`` have no
topic in common. The comparisons below work on the longer names.

Source: OASIS MQTT 5.0, 4.7.
"""

from collections.abc import Sequence
from typing import Final

_LONG: Final = {"#": "+/#", "/#": "/+/#"}
_SHORT: Final = {long: short for short, long in _LONG.items()}


def canonical(filter: str) -> str:
    """Return the one name we use for the topics that ``filter`` matches."""
    return _SHORT.get(filter, filter)


def levels_of(filter: str) -> list[str]:
    """Return the levels of ``filter`` by its longer name, which implies no empty topic."""
    return _LONG.get(filter, filter).split("/")


def matches(filter: str, topic: str) -> bool:
    """Whether a valid ``filter`` (without ``$share``) matches ``topic``.

    A text with wildcards is no topic: no filter matches it.
    """
    if "+" in topic or "#" in topic or (topic[:1] == "$" and filter[:1] in "+#"):
        return False
    return levels_match(filter.split("/"), topic.split("/"), 0)


def levels_match(filter: Sequence[str], topic: Sequence[str], start: int) -> bool:
    """Whether the paths match from level ``start`` on; earlier levels are assumed to match."""
    ends = len(topic)
    for at in range(start, len(filter)):
        level = filter[at]
        if level == "#":
            return True
        if at >= ends or (level != "+" and level != topic[at]):
            return False
    return len(filter) == ends


def contains(a: str, b: str) -> bool:
    """Whether ``a`` matches every topic that ``b`` matches."""
    if _apart_at_root(a, b):
        return False
    outer, inner = levels_of(a), levels_of(b)
    ends = len(inner)
    for at, level in enumerate(outer):
        if level == "#":
            return True
        if at >= ends or inner[at] == "#" or (level != "+" and level != inner[at]):
            return False
    return len(outer) == ends


def overlaps(a: str, b: str) -> bool:
    """Whether some topic matches both ``a`` and ``b``."""
    return not _apart_at_root(a, b) and levels_overlap(levels_of(a), levels_of(b), 0)


def levels_overlap(a: Sequence[str], b: Sequence[str], start: int) -> bool:
    """Whether the paths overlap from level ``start`` on; earlier levels are assumed to."""
    for at in range(start, min(len(a), len(b))):
        x, y = a[at], b[at]
        if x == "#" or y == "#":
            return True
        if x != y and x != "+" and y != "+":
            return False
    longer, shorter = (a, b) if len(a) > len(b) else (b, a)
    rest = longer[max(start, len(shorter)) :]
    return not rest or rest[0] == "#"


def join(a: str, b: str) -> str:
    """Return the least filter that contains ``a`` and ``b``, in canonical form.

    Raises:
        ValueError: No filter contains both, since no wildcard matches a leading ``$``.
    """
    if a.partition("/")[0] != b.partition("/")[0] and (a[0] == "$" or b[0] == "$"):
        raise ValueError(f"no filter contains both {a!a} and {b!a}: one starts with '$'")
    left, right = levels_of(a), levels_of(b)
    joined: list[str] = []
    for x, y in zip(left, right, strict=False):
        if x == "#" or y == "#":
            return canonical("/".join([*joined, "#"]))
        joined.append(x if x == y else "+")
    if len(left) != len(right):
        joined.append("#")
    return canonical("/".join(joined))


def _apart_at_root(a: str, b: str) -> bool:
    """Whether one starts with ``$`` and the other with a wildcard."""
    return (a[0] == "$" and b[0] in "+#") or (b[0] == "$" and a[0] in "+#")
