"""All filters and topics over a tiny alphabet, and the stupidest matcher that can be right.

``other`` is a level that no filter names, and topics are one level longer than filters: so two
filters of this world relate as they would among all topics.
"""

import contextlib
import gc
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import product

from hypothesis import strategies as st

from federator.protocol.filters.trie import levels_to_keep

TOPICS = [
    "/".join(levels)
    for length in range(1, 5)
    for levels in product(("", "a", "b", "other", "$s"), repeat=length)
    if levels != ("",) and "$s" not in levels[1:]
]
PLAIN_FILTERS = [
    "/".join([*levels, *rest])
    for length in range(4)
    for levels in product(("", "a", "b", "+"), repeat=length)
    for rest in ((), ("#",))
    if 0 < length + len(rest) <= 3 and levels + rest != ("",)
]
FILTERS = [*PLAIN_FILTERS, "$s", "$s/#", "$s/a", "$s/+", "$s/+/a", "$t/#"]

plain_filters = st.sampled_from(PLAIN_FILTERS)
filters = st.sampled_from(FILTERS)


def stupid_match(filter: Sequence[str], topic: Sequence[str]) -> bool:
    """OASIS MQTT 5.0, 4.7, by cases."""
    match filter, topic:
        case ["#"], _:
            return True
        case [], []:
            return True
        case ["+", *filter_rest], [_, *topic_rest]:
            return stupid_match(filter_rest, topic_rest)
        case [level, *filter_rest], [same, *topic_rest] if level == same:
            return stupid_match(filter_rest, topic_rest)
        case _:
            return False


def matches_stupidly(filter: str, topic: str) -> bool:
    if topic.startswith("$") and filter[0] in "+#":
        return False
    return stupid_match(filter.split("/"), topic.split("/"))


@cache
def topics_of(filter: str) -> frozenset[str]:
    return frozenset(topic for topic in TOPICS if matches_stupidly(filter, topic))


@contextlib.contextmanager
def traced() -> Iterator[Callable[[], int]]:
    """Within, the call tells how many bytes are held."""

    def held_bytes() -> int:
        levels_to_keep.cache_clear()
        gc.collect()  # and with them what the interpreter keeps for tuples to come
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        yield held_bytes
    finally:
        tracemalloc.stop()
