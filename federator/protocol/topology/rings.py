"""Rings of brokers, ordered by hashing: all brokers compute the same seats.

Think of several round tables at which the same guests sit, each time shuffled anew: all guests hold
hands with both neighbours at every table. One table alone survives any single death, because a ring
broken once is still a line. Two shuffled tables already make the path between any two guests short:
the union of random rings is an expander, whose diameter grows as the logarithm of the guests. A
guest that comes or goes changes hands only with those beside.

No message assigns seats: each broker computes them from the ids alone.

Source: Law and Siu, "Distributed construction of random expander networks", INFOCOM 2003 (unions of
random Hamilton cycles); Stoica et al., "Chord", SIGCOMM 2001 (places by hashing).
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection
from functools import lru_cache
from hashlib import blake2b

from federator.protocol.types import BrokerId

SEATS_REMEMBERED_MAX = 65_536

_Seat = tuple[bytes, BrokerId]


@lru_cache(maxsize=SEATS_REMEMBERED_MAX)
def seat(ring: int, id: BrokerId) -> bytes:
    """The seat of ``id`` on ring ``ring``."""
    return blake2b(b"%d %d" % (ring, id), digest_size=8, person=b"federator ring").digest()


class Rings:
    """The same brokers on ``count`` rings, at least one."""

    def __init__(self, count: int) -> None:
        self._rings: list[list[_Seat]] = [[] for _ in range(count)]
        self._members: set[BrokerId] = set()

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, id: BrokerId) -> bool:
        return id in self._members

    def add(self, id: BrokerId) -> None:
        """Give ``id`` a seat on every ring."""
        if id not in self._members:
            self._members.add(id)
            for number, ring in enumerate(self._rings):
                insort(ring, (seat(number, id), id))

    def discard(self, id: BrokerId) -> None:
        """Remove ``id`` from every ring."""
        if id in self._members:
            self._members.discard(id)
            for number, ring in enumerate(self._rings):
                del ring[bisect_left(ring, (seat(number, id), id))]

    def beside(self, id: BrokerId, *, skip: Collection[BrokerId] = ()) -> set[BrokerId]:
        """The brokers beside ``id`` on each ring, even if ``id`` has no seat; ``skip`` are passed
        over.
        """
        neighbours: set[BrokerId] = set()
        for number, ring in enumerate(self._rings):
            at = (seat(number, id), id)
            ahead = bisect_right(ring, at)
            neighbours |= _first(ring, range(ahead, ahead + len(ring)), id, skip)
            behind = bisect_left(ring, at) - 1
            neighbours |= _first(ring, range(behind, behind - len(ring), -1), id, skip)
        return neighbours


def _first(
    ring: list[_Seat], places: range, self_id: BrokerId, skip: Collection[BrokerId]
) -> set[BrokerId]:
    for place in places:
        other = ring[place % len(ring)][1]
        if other != self_id and other not in skip:
            return {other}
    return set()
