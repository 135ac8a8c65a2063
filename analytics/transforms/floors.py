"""The least delay that links allow between two brokers: half round trips along the least path.

A link's round trip is the smallest that either end measured, halved; a path is found by Dijkstra's
algorithm. Brokers are few, so this happens in the driver, on collected links.
"""

import heapq
from collections.abc import Mapping

Pair = tuple[int, int]


def half_round_trips(least_us: Mapping[Pair, int]) -> dict[Pair, int]:
    """(broker, neighbour) to the least round trip it measured, to (a, b) with a < b, halved."""
    halves: dict[Pair, int] = {}
    for (one, other), round_trip_us in least_us.items():
        pair = (min(one, other), max(one, other))
        half = round_trip_us // 2
        halves[pair] = min(half, halves.get(pair, half))
    return halves


def floors(halves: Mapping[Pair, int]) -> dict[Pair, int]:
    """Links to the least sum between any two brokers that are joined, a < b."""
    beside: dict[int, dict[int, int]] = {}
    for (a, b), half_us in halves.items():
        beside.setdefault(a, {})[b] = half_us
        beside.setdefault(b, {})[a] = half_us
    return {
        (source, other): us
        for source in sorted(beside)
        for other, us in _distances(beside, source).items()
        if source < other
    }


def _distances(beside: Mapping[int, Mapping[int, int]], source: int) -> dict[int, int]:
    settled: dict[int, int] = {}
    waiting = [(0, source)]
    while waiting:
        us, broker = heapq.heappop(waiting)
        if broker in settled:
            continue
        settled[broker] = us
        for other, link_us in beside[broker].items():
            if other not in settled:
                heapq.heappush(waiting, (us + link_us, other))
    return settled
