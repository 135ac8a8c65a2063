"""Which brokers to connect to: those that were named, and those that a guide tells of.

A named address is kept whatever comes. A broker that a guide tells of is connected to when no
connection is known to be to it; when a named one turns out to be, the other is given up. What a
connection is to, its own guide and heads say; a guide's word on another address only says where to
look, and who should be there.

Source: docs/protocol.md 15.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Final

from federator.protocol.messages.guide import Guide
from federator.protocol.types import BrokerId

BROKERS_MAX: Final = 512
"""Connections; brokers beyond it are counted."""


@dataclass(frozen=True, slots=True)
class Dial:
    """Connect to ``url``, where ``broker`` should be."""

    broker: BrokerId
    url: str


@dataclass(frozen=True, slots=True)
class HangUp:
    """Give up the connection to ``url``: that broker is reached otherwise."""

    url: str


class Directory:
    """Addresses, and which broker is behind each.

    Args:
        named: URLs that were given.
        only: Keep to them.

    Attributes:
        refused: Brokers that are not connected to because there are too many.
    """

    def __init__(self, named: Iterable[str], *, only: bool) -> None:
        self.refused = 0
        self._named: dict[str, BrokerId | None] = dict.fromkeys(named)
        self._found: dict[BrokerId, str] = {}
        self._unsure: set[str] = set()  # named ones that went away: another may come back
        self._known: set[BrokerId] = set()
        self._only = only

    @property
    def unreached(self) -> list[BrokerId]:
        """Brokers that guides tell of and for which there is no connection."""
        return sorted(self._known.difference(self._found, self._named.values()))

    def on_down(self, url: str) -> None:
        """The connection to ``url`` ended."""
        if url in self._named:
            self._unsure.add(url)

    def on_failed(self, broker: BrokerId) -> None:
        """The address that was told of ``broker`` is of no use."""
        self._found.pop(broker, None)

    def on_identity(self, url: str, broker: BrokerId) -> tuple[bool, list[HangUp]]:
        """What is at ``url`` says that it is ``broker``.

        Returns:
            Whether to believe it: not when a named connection is known to be to that broker, or
            this one to another. And what to give up for it.
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
        """Learn of brokers, by the guide of one that is believed to be who it says.

        URLs that are ``failing`` were dialled in vain: another address is tried when one is told.
        """
        orders: list[Dial | HangUp] = []
        taken = {*self._named, *self._found.values()}
        for each in guide.brokers if not self._only else ():
            if len(self._known) < BROKERS_MAX:
                self._known.add(each.id)
            at = self._found.get(each.id)
            if not each.address or each.address in taken or each.id in self._named.values():
                continue
            if at is not None and at not in failing:
                continue
            if at is not None:
                taken.discard(at)
                orders.append(HangUp(at))
            elif len(self._named) + len(self._found) >= BROKERS_MAX:
                self.refused += 1
                continue
            taken.add(each.address)
            self._found[each.id] = each.address
            orders.append(Dial(each.id, each.address))
        return orders
