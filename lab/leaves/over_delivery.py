"""How much a bounded cover brings to a hub that no leaf wanted, over the bound.

The cover is the product's own (``protocol.leaves.switch``), asked for what leaves of a naming want,
leaf by leaf. Drawn publications that it asks for are looked up in the wishes. From the first half
of them the cover learns, as a hub does, how many names levels have; the second half is told apart.

Source: docs/hubs.md, "In vain".
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from mqtt5 import PublishPacket, QoS

from federator.protocol.filters import FilterTrie
from federator.protocol.leaves.level_names import LevelNames
from federator.protocol.leaves.switch import Asked
from federator.protocol.types import Millis
from lab.leaves.naming import Naming, Publication


@dataclass(frozen=True, slots=True)
class Carried:
    """Bytes of PUBLISH packets that a cover brought, and of those that nobody wanted."""

    bytes_carried: int
    bytes_in_vain: int

    @property
    def in_vain(self) -> float:
        return self.bytes_in_vain / self.bytes_carried if self.bytes_carried else 0.0


@dataclass(frozen=True, slots=True)
class OverDelivery:
    """What a cover of at most ``bound`` filters brings."""

    bound: int
    filters: int  # of the cover, in the end
    first: Carried  # before it learned anything from traffic
    then: Carried


def over_delivery(
    naming: Naming, bounds: Iterable[int], *, seed: int, publications: int, skew: float
) -> list[OverDelivery]:
    """For each bound, with the same wishes and the same publications."""
    wanted = naming.wanted(seed)
    drawn = list(islice(naming.traffic(seed, skew=skew), publications))
    return [_carried(wanted.values(), drawn, bound) for bound in bounds]


def _carried(
    wanted: Iterable[Sequence[str]], drawn: Sequence[Publication], bound: int
) -> OverDelivery:
    names, wishes = LevelNames(), FilterTrie()
    asked = Asked(bound, 0, names, wishes)
    for filters in wanted:
        asked.update(filters, (), Millis(0))
    half = len(drawn) // 2
    first = _brought(asked, wishes, drawn[:half], names)
    asked.update((), (), Millis(0))
    then = _brought(asked, wishes, drawn[half:], names)
    return OverDelivery(bound, len(asked.cover), first, then)


def _brought(
    asked: Asked, wishes: FilterTrie, drawn: Iterable[Publication], names: LevelNames
) -> Carried:
    cover = FilterTrie()
    for filter_ in asked.cover.filters:
        cover.add(filter_)
    size = in_vain = 0
    for topic, payload in drawn:
        if cover.overlaps(topic):
            packet_bytes = size_of(topic, payload)
            size += packet_bytes
            if not wishes.overlaps(topic):
                in_vain += packet_bytes
                names.note(topic)
    return Carried(size, in_vain)


def size_of(topic: str, payload: bytes) -> int:
    return len(PublishPacket(topic, payload, qos=QoS.AT_LEAST_ONCE, packet_id=1).write())
