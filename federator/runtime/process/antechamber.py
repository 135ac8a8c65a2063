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
from dataclasses import KW_ONLY, dataclass
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

    __slots__ = ("_room", "address", "give_way", "received")

    def __init__(self, room: "Antechamber", address: object, give_way: Callable[[], None]) -> None:
        self._room = room
        self.address = address
        self.give_way = give_way
        self.received = 0  # bytes received

    def receive(self, count: int) -> None:
        """Count bytes of a connection that still has its place; one may have to give way."""
        if self in self._room.unfinished or self in self._room.waiting:
            self.received += count
            self._room.bound_bytes(count)

    def finish(self, give_way: Callable[[], None] | None = None) -> None:
        """Note that the request is complete, and what closes the connection from now on.

        It waits for our answer: its silence no longer counts.
        """
        self.give_way = give_way or self.give_way
        if self in self._room.unfinished:
            del self._room.unfinished[self]
            self._room.waiting[self] = None

    def begin(self) -> None:
        """Note that we wait for the client again: it has its answer, or does not take it."""
        room = self._room
        if self in room.waiting:
            del room.waiting[self]
            room.make_room()
            room.unfinished[self] = None
            there = room.at[self.address]
            there[self] = there.pop(self)  # it has not been silent for long

    def leave(self) -> None:
        """Give the place back: a broker accepted the client, or it is gone."""
        room = self._room
        if self in room.unfinished:
            del room.unfinished[self]
        elif self in room.waiting:
            del room.waiting[self]
        else:
            return
        room.bytes -= self.received
        there = room.at[self.address]
        del there[self]
        if not there:
            del room.at[self.address]


@dataclass(eq=False, repr=False)
class Antechamber:
    """The places of one listener, or of several that share them."""

    counts: Counts
    _: KW_ONLY
    unfinished_max: int  # connections without a complete request
    per_address_max: int  # connections of one IPv4 address or IPv6 network
    bytes_max: int = sys.maxsize  # what all of them may have sent
    shared: Iterable[str] = ()  # addresses and networks of many clients, without a limit each

    def __post_init__(self) -> None:
        self.bytes = 0
        self._shared = [ipaddress.ip_network(network) for network in self.shared]
        self.unfinished: dict[Place, None] = {}  # the oldest first
        self.waiting: dict[Place, None] = {}
        self.at: dict[object, dict[Place, None]] = {}

    def __len__(self) -> int:
        """Connections without a complete request."""
        return len(self.unfinished)

    def enter(self, host: str, give_way: Callable[[], None]) -> Place | None:
        """A place for a connection from ``host``; none if all others of its address wait for us."""
        address = self._address(host)
        others = self.at.get(address, {})
        if address is not None and len(others) >= self.per_address_max:
            oldest = next((other for other in others if other in self.unfinished), None)
            if oldest is None:
                self.counts.over_share += 1
                return None
            self._send_away(oldest)
        self.make_room()
        place = Place(self, address, give_way)
        self.unfinished[place] = None
        self.at.setdefault(address, {})[place] = None
        return place

    def bound_bytes(self, count: int) -> None:
        """``count`` more bytes came; beyond the bound the connection that sent most gives way."""
        self.bytes += count
        while self.bytes > self.bytes_max:
            places = chain(self.unfinished, self.waiting)
            self._send_away(max(places, key=lambda place: place.received))

    def make_room(self) -> None:
        if len(self.unfinished) >= self.unfinished_max:
            self._send_away(next(iter(self.unfinished)))

    def clear(self) -> None:
        """Close all unfinished connections."""
        for place in [*self.unfinished]:
            place.leave()
            place.give_way()

    def _send_away(self, place: Place) -> None:
        self.counts.gave_way += 1
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
