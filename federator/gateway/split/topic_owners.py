"""Which broker owns each topic, and at which brokers a subscription is made.

Upstreams name filters. A topic belongs to the first upstream with a matching filter, or else to the
rest. A subscription is made at every owner that some topic of its filter may belong to. So each
topic's owner has exactly those of a client's subscriptions that match the topic, and delivers to
the client what a single broker would.

Source: Fawwaz 2022, 3.1 (the MQTT proxy); docs/gateway.md, "Topics of certain brokers".
"""

from collections.abc import Iterable, Sequence
from typing import Final

from federator.protocol.bounded_cache import BoundedCache
from federator.protocol.filters import FilterTrie, contains, without_share

REST: Final = 0
"""The leg of all topics that no upstream owns; upstreams follow in their order, from 1."""

KNOWN_TOPICS_MAX: Final = 8_192


class TopicOwners:
    """The owner of every topic.

    Args:
        upstreams: The filters of each, without ``$share``.

    Attributes:
        legs: How many owners there are, including the rest.
        of_encoded: Like ``of``, for a topic as encoded in a packet; answers are cached.
    """

    __slots__ = ("_tries", "legs", "of_encoded")

    def __init__(self, upstreams: Sequence[Iterable[str]]) -> None:
        self.legs = len(upstreams) + 1
        self._tries = []
        for filters in upstreams:
            trie = FilterTrie()
            for filter in filters:
                trie.add(filter)
            self._tries.append(trie)
        self.of_encoded: BoundedCache[bytes, int] = BoundedCache(
            lambda topic: self.of(topic.decode(errors="replace")), answers_max=KNOWN_TOPICS_MAX
        )

    def of(self, topic: str) -> int:
        """The leg that ``topic`` belongs to."""
        for leg, trie in enumerate(self._tries, start=1):
            if trie.match(topic):
                return leg
        return REST

    def sharing(self, filter: str) -> tuple[int, ...]:
        """The legs that topics of ``filter`` may belong to, ascending, with the rest last."""
        plain = without_share(filter)
        legs: list[int] = []
        for leg, trie in enumerate(self._tries, start=1):
            near = trie.overlapping(plain)
            if near:
                legs.append(leg)
            if any(contains(owned, plain) for owned in near):
                return tuple(legs)
        return (*legs, REST)
