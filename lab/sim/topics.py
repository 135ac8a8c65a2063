"""MQTT matching as a schoolbook writes it: the simulator's own, to hold against the daemon's.

Source: OASIS MQTT 5.0, section 4.7.
"""

from functools import lru_cache

PAIRS_REMEMBERED_MAX = 65_536


@lru_cache(maxsize=PAIRS_REMEMBERED_MAX)
def topic_matches(filter: str, topic: str) -> bool:
    """Compare level by level."""
    if topic.startswith("$") and not filter.startswith("$"):
        return False
    wanted, levels = filter.split("/"), topic.split("/")
    for at, level in enumerate(wanted):
        if level == "#":
            return True
        if at >= len(levels) or level not in ("+", levels[at]):
            return False
    return len(wanted) == len(levels)
