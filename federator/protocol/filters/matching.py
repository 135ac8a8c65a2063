"""Does a topic match a filter?

Walk both paths level by level. ``a/#`` matches ``a`` too, and a leading wildcard never matches a
topic that starts with ``$``.

Source: MQTT Version 5.0, sections 4.7.1 and 4.7.2.
"""

from collections.abc import Sequence


def matches(filter: str, topic: str) -> bool:
    """Tell whether a valid ``filter`` (without ``$share``) matches ``topic``.

    A text with wildcards is no topic: nothing matches it.
    """
    if "+" in topic or "#" in topic or (topic[:1] == "$" and filter[:1] in "+#"):
        return False
    return levels_match(filter.split("/"), topic.split("/"), 0)


def levels_match(filter: Sequence[str], topic: Sequence[str], start: int) -> bool:
    """Tell whether the paths match from level ``start`` on; earlier levels are taken to match."""
    ends = len(topic)
    for at in range(start, len(filter)):
        level = filter[at]
        if level == "#":
            return True
        if at >= ends or (level != "+" and level != topic[at]):
            return False
    return len(filter) == ends
