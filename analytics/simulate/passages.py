"""How far each destination is, over the arcs that carry a stream: the first copy wins.

A broker passes a frame on when it first has it, so a copy's time of arrival is the least sum of
delays over the arcs that were used; a copy over any other arc is a duplicate.
"""

import heapq
from collections.abc import Collection, Mapping
from dataclasses import dataclass

Arc = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Reached:
    """A broker that a stream's frames come to.

    Attributes:
        hops: Links travelled.
        sender: Over whom the first copy comes; -1 at the origin.
    """

    broker: int
    hops: int
    sender: int
    delay_us: int


@dataclass(frozen=True, slots=True)
class Passage:
    """Where one stream's frames go.

    Attributes:
        reached: By order of arrival, the origin first.
        duplicates: Arcs whose copies are suppressed at their end.
    """

    reached: tuple[Reached, ...]
    arcs: frozenset[Arc]
    duplicates: frozenset[Arc]

    def way_to(self, broker: int) -> list[Arc]:
        """The arcs of the first copy, from its end."""
        by_broker = {one.broker: one for one in self.reached}
        way = []
        while (sender := by_broker[broker].sender) >= 0:
            way.append((sender, broker))
            broker = sender
        return way


def trace(origin: int, arcs: Collection[Arc], delay_us: Mapping[Arc, int]) -> Passage:
    """The first copies among those over ``arcs``."""
    onward: dict[int, list[int]] = {}
    for sender, receiver in sorted(arcs):
        onward.setdefault(sender, []).append(receiver)
    reached: dict[int, Reached] = {}
    queue = [(0, 0, origin, -1)]
    while queue:
        so_far_us, hops, broker, sender = heapq.heappop(queue)
        if broker in reached:
            continue
        reached[broker] = Reached(broker, hops, sender, so_far_us)
        for receiver in onward.get(broker, ()):
            if receiver not in reached:
                delay = so_far_us + delay_us[broker, receiver]
                heapq.heappush(queue, (delay, hops + 1, receiver, broker))
    used = frozenset(arc for arc in arcs if arc[0] in reached)
    first = {(one.sender, one.broker) for one in reached.values()}
    return Passage(tuple(reached.values()), used, used - first)
