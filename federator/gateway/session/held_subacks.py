"""SUBACKs that wait until the federation knows their filters, and deliveries behind them.

A broker answers SUBSCRIBE first and then sends retained values. While we hold the SUBACK, we hold
deliveries on its filters, too, and the rest passes. Of several SUBACKs a delivery waits for the
earliest whose filters match its topic; so each topic keeps its order.

Source: OASIS MQTT 5.0, 3.8.4 (to deliver before the SUBACK is allowed, but surprises clients) and
4.6.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from federator.gateway.session.orders import AskSettled
from federator.gateway.session.subscriptions import plain
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


class HeldSubacks:
    """The SUBACKs of one client that wait, and what waits behind them.

    The token in ``AskSettled`` identifies the SUBACK.
    """

    __slots__ = ("_behind", "_bytes", "_subacks", "_token")

    def __init__(self) -> None:
        self._subacks: dict[int, bytes] = {}
        self._behind: dict[int, _Behind] = {}
        self._bytes = 0
        self._token = 0

    def __bool__(self) -> bool:
        """Whether a delivery might have to wait."""
        return bool(self._behind)

    def hold(self, suback: bytes, filters: Iterable[str]) -> AskSettled:
        """Hold ``suback`` until ``release``, and deliveries on ``filters`` until ``take``."""
        self._token += 1
        asked = AskSettled(self._token, plain(filters))
        self._subacks[asked.token] = suback
        if len(self._behind) < SUBACKS_MAX and len(asked.filters) <= FILTERS_MAX:
            self._behind[asked.token] = _Behind(asked.filters)
        return asked

    def release(self, token: int) -> bytes | None:
        """Remove and return the SUBACK of ``token``, if it is held."""
        return self._subacks.pop(token, None)

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
        """Remove and return all deliveries held."""
        return [packet for token in [*self._behind] for packet in self.take(token)]
