"""Deliveries that wait behind a SUBACK, which itself waits until the federation knows the filters.

A broker answers SUBSCRIBE first and then sends what it retains. While we keep the answer back, what
comes on its filters is kept back, too, and everything else passes. Of several answers a delivery
waits for the earliest whose filters match its topic; so each topic keeps its order.

Source: OASIS MQTT 5.0, 3.8.4 (to deliver before the SUBACK is allowed, but takes clients by
surprise) and 4.6.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from federator.protocol.filters import FilterTrie

SUBACKS_MAX: Final = 16
"""Of one client; deliveries do not wait for further ones,"""

FILTERS_MAX: Final = 1_000
"""nor for one of more filters: to match them all takes long."""

BYTES_MAX: Final = 262_144
"""What may wait; beyond it nothing waits any more."""


@dataclass(slots=True)
class _Behind:
    filters: tuple[str, ...]
    trie: FilterTrie | None = None  # made when the first delivery comes
    packets: list[bytes] = field(default_factory=list)

    def matches(self, topic: str) -> bool:
        if self.trie is None:
            self.trie = FilterTrie()
            for filter in self.filters:
                self.trie.add(filter)
        return bool(self.trie.match(topic))


class SubackOrder:
    """The deliveries of one client that wait behind its SUBACKs."""

    __slots__ = ("_behind", "_bytes")

    def __init__(self) -> None:
        self._behind: dict[int, _Behind] = {}
        self._bytes = 0

    def __bool__(self) -> bool:
        """Whether any delivery might have to wait."""
        return bool(self._behind)

    def wait_for(self, token: int, filters: Iterable[str]) -> None:
        """Keep back what comes on ``filters`` from now on, until ``take(token)``."""
        wanted = tuple(filters)
        if len(self._behind) < SUBACKS_MAX and len(wanted) <= FILTERS_MAX:
            self._behind[token] = _Behind(wanted)

    def keeps(self, topic: bytes, packet: bytes) -> bool:
        """Whether ``packet``, a delivery on ``topic``, waits; it is then in our charge."""
        text = topic.decode(errors="replace")
        for behind in self._behind.values():
            if behind.matches(text):
                behind.packets.append(packet)
                self._bytes += len(packet)
                return True
        return False

    @property
    def full(self) -> bool:
        """Whether so much waits that all of it must go now, by ``take_all``."""
        return self._bytes > BYTES_MAX

    def take(self, token: int) -> list[bytes]:
        """What waited for the SUBACK of ``token``, which has gone."""
        behind = self._behind.pop(token, None)
        packets = behind.packets if behind is not None else []
        self._bytes -= sum(map(len, packets))
        return packets

    def take_all(self) -> list[bytes]:
        """Everything that waits; nothing waits any more."""
        return [packet for token in [*self._behind] for packet in self.take(token)]
