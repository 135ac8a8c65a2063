"""Which of several brokers each topic belongs to, and where a subscription must stand therefore.

Upstreams name filters; a topic belongs to the first upstream with a filter that matches it, and to
the rest otherwise. A subscription stands at every owner that some topic of its filter may belong
to. So on every topic its owner has exactly those of a client's subscriptions that match the topic:
what that broker gives the client there is what a single broker would.

Source: papers/distributed-broker-placement.txt, section 3.1 (the MQTT proxy); docs/gateway.md.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from federator.protocol.filters import FilterTrie, contains, without_share

REST: Final = 0
"""The way of all topics that no upstream owns; upstreams follow in their order, from 1."""

KNOWN_TOPICS_MAX: Final = 8_192
KNOWN_TOPIC_BYTES_MAX: Final = 256
"""Longer topics are looked up each time."""


class Owners:
    """The owner of every topic.

    Args:
        upstreams: The filters of each, without ``$share``.

    Attributes:
        ways: How many owners there are, the rest among them.
    """

    __slots__ = ("_known", "_tries", "ways")

    def __init__(self, upstreams: Sequence[Iterable[str]]) -> None:
        self.ways = len(upstreams) + 1
        self._tries = []
        for filters in upstreams:
            trie = FilterTrie()
            for filter in filters:
                trie.add(filter)
            self._tries.append(trie)
        self._known: dict[bytes, int] = {}

    def of(self, topic: str) -> int:
        """The way that ``topic`` belongs to."""
        for way, trie in enumerate(self._tries, start=1):
            if trie.match(topic):
                return way
        return REST

    def of_encoded(self, topic: bytes) -> int:
        """The same of a topic as it stands in a packet; fast when it was asked before."""
        way = self._known.get(topic)
        if way is None:
            way = self.of(topic.decode(errors="replace"))
            if len(topic) <= KNOWN_TOPIC_BYTES_MAX:
                if len(self._known) >= KNOWN_TOPICS_MAX:
                    self._known.clear()
                self._known[topic] = way
        return way

    def sharing(self, filter: str) -> tuple[int, ...]:
        """The ways that topics of ``filter`` may belong to, ascending but for the rest, last."""
        plain = without_share(filter)
        ways: list[int] = []
        for way, trie in enumerate(self._tries, start=1):
            near = trie.overlapping(plain)
            if near:
                ways.append(way)
            if any(contains(each, plain) for each in near):
                return tuple(ways)
        return (*ways, REST)
