"""Which of several brokers each topic belongs to, and where a subscription must stand therefore.

Upstreams name filters; a topic belongs to the first upstream with a filter that matches it, and to
the rest otherwise. A subscription stands at every owner that some topic of its filter may belong
to. So on every topic its owner has exactly those of a client's subscriptions that match the topic:
what that broker gives the client there is what a single broker would.

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
        legs: How many owners there are, the rest among them.
        of_encoded: As ``of``, of a topic as it stands in a packet; fast when it was asked before.
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
        """The legs that topics of ``filter`` may belong to, ascending but for the rest, last."""
        plain = without_share(filter)
        legs: list[int] = []
        for leg, trie in enumerate(self._tries, start=1):
            near = trie.overlapping(plain)
            if near:
                legs.append(leg)
            if any(contains(each, plain) for each in near):
                return tuple(legs)
        return (*legs, REST)
