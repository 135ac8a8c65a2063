"""Which brokers to connect to: those named by the operator, and those in guides.

A named address is always kept. A broker from a guide is connected to while no connection is known
to lead to it; when a named one turns out to do so, the other is closed. Only a broker's own guide
and heads identify it; for another address a guide only suggests where to connect, and which broker
to expect.

Source: docs/protocol.md 15.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Final

from federator.protocol.messages.guide import Guide
from federator.protocol.types import BrokerId

BROKERS_MAX: Final = 512
"""Limit of connections."""


@dataclass(frozen=True, slots=True)
class Dial:
    """Connect to ``url``, where ``broker`` is expected."""

    broker: BrokerId
    url: str


@dataclass(frozen=True, slots=True)
class HangUp:
    """Close the connection to ``url``: its broker is reached by another one."""

    url: str


class Directory:
    """Addresses, and which broker is behind each.

    Args:
        named: URLs from the configuration.
        only: Connect to no others.
    """

    def __init__(self, named: Iterable[str], *, only: bool) -> None:
        self._named: dict[str, BrokerId | None] = dict.fromkeys(named)
        self._found: dict[BrokerId, str] = {}
        # named URLs that disconnected: another broker may be there next
        self._unsure: set[str] = set()
        self._known_brokers: set[BrokerId] = set()
        self._only = only

    @property
    def unreached(self) -> list[BrokerId]:
        """Brokers in guides to which there is no connection."""
        return sorted(self._known_brokers.difference(self._found, self._named.values()))

    def on_down(self, url: str) -> None:
        if url in self._named:
            self._unsure.add(url)

    def on_failed(self, broker: BrokerId) -> None:
        """Forget the address of ``broker`` from a guide: it is of no use."""
        self._found.pop(broker, None)

    def on_identity(self, url: str, broker: BrokerId) -> tuple[bool, list[HangUp]]:
        """Handle the claim of what is at ``url`` to be ``broker``.

        Returns:
            Whether to believe it: not if a named connection is known to lead to that broker, or
            this one to another. And the connections to close.
        """
        if url not in self._named:
            return self._found.get(broker) == url, []
        if self._named[url] == broker:
            self._unsure.discard(url)
            return True, []
        settled = self._named[url] is not None and url not in self._unsure
        if settled or broker in self._named.values():
            return False, []
        self._unsure.discard(url)
        self._named[url] = broker
        at = self._found.pop(broker, None)
        return True, [] if at is None else [HangUp(at)]

    def on_guide(self, guide: Guide, *, failing: Container[str] = ()) -> list[Dial | HangUp]:
        """Learn brokers from a believed guide.

        ``failing`` URLs did not connect: a new address from a guide replaces them.
        """
        orders: list[Dial | HangUp] = []
        taken = {*self._named, *self._found.values()}
        for broker in guide.brokers if not self._only else ():
            if len(self._known_brokers) < BROKERS_MAX:
                self._known_brokers.add(broker.id)
            at = self._found.get(broker.id)
            if not broker.address or broker.address in taken or broker.id in self._named.values():
                continue
            if at is not None and at not in failing:
                continue
            if at is not None:
                taken.discard(at)
                orders.append(HangUp(at))
            elif len(self._named) + len(self._found) >= BROKERS_MAX:
                continue
            taken.add(broker.address)
            self._found[broker.id] = broker.address
            orders.append(Dial(broker.id, broker.address))
        return orders
