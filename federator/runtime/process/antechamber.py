"""Bounds the connections whose request is not complete yet.

A new connection is a stranger, and *unfinished* until its request is complete (at a gateway: its
CONNECT, at the port for agents: its token); then it waits for our answer. Silence costs a client
nothing, so every new connection gets a place, and the one that is unfinished for the longest gives
way: a crowd of silent clients keeps no active one out. The bytes they send are bounded in sum;
beyond the bound the connection that sent the most gives way, for an honest request is small. Each
address has its own share, within which it displaces only itself.

Source: docs/gateway.md, "Strangers".
"""

import ipaddress
import sys
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Final, Protocol

IPV6_NETWORK_BITS: Final = 64
"""The network that one IPv6 host commonly has to itself."""


class Counts(Protocol):
    """The counters that an antechamber increments.

    Attributes:
        gave_way: Connections closed to make room for others.
        over_share: Connections refused because all others of their address wait for our answer.
    """

    gave_way: int
    over_share: int


class Place:
    """The place of one connection; ``give_way`` closes it when another needs the place."""

    __slots__ = ("_antechamber", "address", "give_way", "received")

    def __init__(
        self, antechamber: "Antechamber", address: object, give_way: Callable[[], None]
    ) -> None:
        self._antechamber = antechamber
        self.address = address
        self.give_way = give_way
        self.received = 0  # bytes received

    def receive(self, count: int) -> None:
        """Count bytes of a connection that still has its place; one may have to give way."""
        self._antechamber.receive(self, count)

    def finish(self, give_way: Callable[[], None] | None = None) -> None:
        """Note that the request is complete, and what closes the connection from now on."""
        self.give_way = give_way or self.give_way
        self._antechamber.finish(self)

    def begin(self) -> None:
        """Note that we wait for the client again."""
        self._antechamber.begin(self)

    def leave(self) -> None:
        """Give the place back: a broker accepted the client, or it is gone."""
        self._antechamber.leave(self)


class Antechamber:
    """The places of one listener, or of several that share them.

    Args:
        unfinished_max: Connections without a complete request.
        per_address_max: Connections of one IPv4 address or IPv6 network.
        bytes_max: What all of them may have sent.
        shared: Addresses and networks used by many clients, without a limit per address.
    """

    def __init__(
        self,
        counts: Counts,
        *,
        unfinished_max: int,
        per_address_max: int,
        bytes_max: int = sys.maxsize,
        shared: Iterable[str] = (),
    ) -> None:
        self.bytes = 0
        self._counts = counts
        self._unfinished_max = unfinished_max
        self._per_address_max = per_address_max
        self._bytes_max = bytes_max
        self._shared = [ipaddress.ip_network(network) for network in shared]
        self._unfinished: dict[Place, None] = {}  # the oldest first
        self._waiting: dict[Place, None] = {}
        self._at: dict[object, dict[Place, None]] = {}

    def __len__(self) -> int:
        """Connections without a complete request."""
        return len(self._unfinished)

    def enter(self, host: str, give_way: Callable[[], None]) -> Place | None:
        """A place for a connection from ``host``; none if all others of its address wait for us."""
        address = self._address(host)
        others = self._at.get(address, {})
        if address is not None and len(others) >= self._per_address_max:
            oldest = next((other for other in others if other in self._unfinished), None)
            if oldest is None:
                self._counts.over_share += 1
                return None
            self._send_away(oldest)
        self._make_room()
        place = Place(self, address, give_way)
        self._unfinished[place] = None
        self._at.setdefault(address, {})[place] = None
        return place

    def receive(self, place: Place, count: int) -> None:
        """Count received bytes; beyond the bound the connection that sent the most gives way."""
        if place not in self._unfinished and place not in self._waiting:
            return
        place.received += count
        self.bytes += count
        while self.bytes > self._bytes_max:
            places = chain(self._unfinished, self._waiting)
            self._send_away(max(places, key=lambda place: place.received))

    def finish(self, place: Place) -> None:
        """Mark ``place`` as waiting for our answer: its silence no longer counts."""
        if place in self._unfinished:
            del self._unfinished[place]
            self._waiting[place] = None

    def begin(self, place: Place) -> None:
        """Mark ``place`` as unfinished again: it has its answer, or does not take it."""
        if place in self._waiting:
            del self._waiting[place]
            self._make_room()
            self._unfinished[place] = None
            there = self._at[place.address]
            there[place] = there.pop(place)  # it has not been silent for long

    def leave(self, place: Place) -> None:
        if place in self._unfinished:
            del self._unfinished[place]
        elif place in self._waiting:
            del self._waiting[place]
        else:
            return
        self.bytes -= place.received
        there = self._at[place.address]
        del there[place]
        if not there:
            del self._at[place.address]

    def clear(self) -> None:
        """Close all unfinished connections."""
        for place in [*self._unfinished]:
            place.leave()
            place.give_way()

    def _make_room(self) -> None:
        if len(self._unfinished) >= self._unfinished_max:
            self._send_away(next(iter(self._unfinished)))

    def _send_away(self, place: Place) -> None:
        self._counts.gave_way += 1
        place.leave()
        place.give_way()

    def _address(self, host: str) -> object:
        """The share that a connection from ``host`` counts for; ``None`` if many clients use it."""
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return None  # already gone, so its address is unknown
        if isinstance(address, ipaddress.IPv6Address):
            address = address.ipv4_mapped or address
        if any(address in network for network in self._shared):
            return None
        if isinstance(address, ipaddress.IPv6Address):
            return int(address) >> (128 - IPV6_NETWORK_BITS)
        return str(address)
