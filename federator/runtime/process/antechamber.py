"""Where connections wait while the next word is the other end's: they have only so much room.

Whoever connects is a stranger, and *unfinished* until its request is whole (at a gateway: its
CONNECT, at the port for agents: its token); then it waits for our answer. To be silent costs
nothing, so whoever comes is given a place, and who is unfinished for the longest gives way: a crowd
of silent ones keeps nobody out who speaks. What they send counts in sum; when that is too much, who
sent the most gives way, for an honest request is small. One address has its own share, within which
it crowds out itself alone.

Source: docs/gateway.md, "Strangers".
"""

import ipaddress
import sys
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Final, Protocol

IPV6_NETWORK_BITS: Final = 64
"""What one IPv6 host commonly has to itself."""


class Counts(Protocol):
    """Whose numbers an antechamber raises.

    Attributes:
        gave_way: Connections whose place another needed.
        over_share: Connections refused, as all of their address wait for our answer.
    """

    gave_way: int
    over_share: int


class Place:
    """The place of one connection, which ``give_way`` ends when another needs the place."""

    __slots__ = ("_antechamber", "address", "give_way", "received")

    def __init__(
        self, antechamber: "Antechamber", address: object, give_way: Callable[[], None]
    ) -> None:
        self._antechamber = antechamber
        self.address = address
        self.give_way = give_way
        self.received = 0  # bytes that it sent

    def receive(self, count: int) -> None:
        """Count bytes of a connection that still has its place; somebody may have to give way."""
        self._antechamber.receive(self, count)

    def finish(self, give_way: Callable[[], None] | None = None) -> None:
        """Note that the request is whole, and who ends the connection from now on."""
        self.give_way = give_way or self.give_way
        self._antechamber.finish(self)

    def begin(self) -> None:
        """Note that the next word is the other end's once more."""
        self._antechamber.begin(self)

    def leave(self) -> None:
        """Give the place back: a broker accepted the client, or it is gone."""
        self._antechamber.leave(self)


class Antechamber:
    """The places of one listener, or of several that share them.

    Args:
        unfinished_max: Connections without a whole request.
        per_address_max: Connections of one IPv4 address or IPv6 network.
        bytes_max: What all of them may have sent.
        shared: Addresses and networks that are many clients', to which no share is set.
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
        self._shared = [ipaddress.ip_network(each) for each in shared]
        self._unfinished: dict[Place, None] = {}  # the oldest first
        self._waiting: dict[Place, None] = {}
        self._at: dict[object, dict[Place, None]] = {}

    def __len__(self) -> int:
        """Connections without a whole request."""
        return len(self._unfinished)

    def enter(self, host: str, give_way: Callable[[], None]) -> Place | None:
        """A place for a connection from ``host``; none if others of its address wait on all."""
        address = self._address(host)
        others = self._at.get(address, {})
        if address is not None and len(others) >= self._per_address_max:
            oldest = next((each for each in others if each in self._unfinished), None)
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
        """Count what ``place`` sent; whoever sent the most gives way if it is too much in sum."""
        if place not in self._unfinished and place not in self._waiting:
            return
        place.received += count
        self.bytes += count
        while self.bytes > self._bytes_max:
            everybody = chain(self._unfinished, self._waiting)
            self._send_away(max(everybody, key=lambda each: each.received))

    def finish(self, place: Place) -> None:
        """Let ``place`` wait for our answer: it gives way to nobody for being silent."""
        if place in self._unfinished:
            del self._unfinished[place]
            self._waiting[place] = None

    def begin(self, place: Place) -> None:
        """Let ``place`` be unfinished once more: it has its answer, or does not take it."""
        if place in self._waiting:
            del self._waiting[place]
            self._make_room()
            self._unfinished[place] = None
            there = self._at[place.address]
            there[place] = there.pop(place)  # it is not silent for long

    def leave(self, place: Place) -> None:
        """Forget ``place``."""
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
        """Send away whoever is unfinished."""
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
        """Whose share a connection from ``host`` takes; ``None`` if it is many clients'."""
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return None  # it is gone already, so nobody knows where it came from
        if isinstance(address, ipaddress.IPv6Address):
            address = address.ipv4_mapped or address
        if any(address in network for network in self._shared):
            return None
        if isinstance(address, ipaddress.IPv6Address):
            return int(address) >> (128 - IPV6_NETWORK_BITS)
        return str(address)
