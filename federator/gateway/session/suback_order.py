"""Deliveries that wait behind a SUBACK, which itself waits until the federation knows the filters.

A broker answers SUBSCRIBE first and then sends retained values. While we hold the SUBACK, we hold
deliveries on its filters, too, and the rest passes. Of several SUBACKs a delivery waits for the
earliest whose filters match its topic; so each topic keeps its order.

Source: OASIS MQTT 5.0, 3.8.4 (to deliver before the SUBACK is allowed, but surprises clients) and
4.6.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from federator.protocol.filters import FilterTrie

SUBACKS_MAX: Final = 16
"""Per client; deliveries do not wait for further ones,"""

FILTERS_MAX: Final = 1_000
"""nor for a SUBACK of more filters: to match them all takes long."""

BYTES_MAX: Final = 262_144
"""Limit of held deliveries; beyond it all are released."""


@dataclass(slots=True)
class _Behind:
    filters: tuple[str, ...]
    trie: FilterTrie | None = None  # built for the first delivery
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
        """Whether a delivery might have to wait."""
        return bool(self._behind)

    def wait_for(self, token: int, filters: Iterable[str]) -> None:
        """Hold deliveries on ``filters`` from now on, until ``take(token)``."""
        names = tuple(filters)
        if len(self._behind) < SUBACKS_MAX and len(names) <= FILTERS_MAX:
            self._behind[token] = _Behind(names)

    def keeps(self, topic: bytes, packet: bytes) -> bool:
        """Hold ``packet``, a delivery on ``topic``, if it must wait; return whether it is held."""
        text = topic.decode(errors="replace")
        for behind in self._behind.values():
            if behind.matches(text):
                behind.packets.append(packet)
                self._bytes += len(packet)
                return True
        return False

    @property
    def full(self) -> bool:
        """Whether so much is held that ``take_all`` must be called now."""
        return self._bytes > BYTES_MAX

    def take(self, token: int) -> list[bytes]:
        """Remove and return what waited for the SUBACK of ``token``."""
        behind = self._behind.pop(token, None)
        packets = behind.packets if behind is not None else []
        self._bytes -= sum(map(len, packets))
        return packets

    def take_all(self) -> list[bytes]:
        """Remove and return everything held."""
        return [packet for token in [*self._behind] for packet in self.take(token)]
