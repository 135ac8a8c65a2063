"""The yardstick's own floors and clocks, in plain Python: brokers are few."""

from typing import Any

TOLERANCE_US = 1_000
IMPLAUSIBLE_US = 10_000_000

Pair = tuple[int, int]
FAR = 1 << 60


def least_ways(half: list[tuple[Any, ...]]) -> dict[Pair, int]:
    """Floyd and Warshall's sums of half round trips, between a < b."""
    nodes = sorted({end for a, b, _ in half for end in (a, b)})
    way = {(a, b): (0 if a == b else FAR) for a in nodes for b in nodes}
    for a, b, us in half:
        way[a, b] = way[b, a] = us
    for via in nodes:
        for a in nodes:
            for b in nodes:
                way[a, b] = min(way[a, b], way[a, via] + way[via, b])
    return {(a, b): us for (a, b), us in way.items() if a < b and us < FAR}


def judge(
    seen: dict[Pair, tuple[int, int]], floors: dict[Pair, int]
) -> tuple[list[tuple[Any, ...]], dict[int, dict[int, int]]]:
    """(a, b, offset, least there, least back, windows, verdict), and what clocks say of others.

    A pair is believed unless its fastest came sooner than the floor less max(1 ms, a quarter of
    it). Two ways: half the difference. One way: the difference along the fastest two-way pairs.
    """
    both = sorted({(a, b) for a, b in seen if a < b and (b, a) in seen})
    single = sorted({tuple(sorted(pair)) for pair in seen if pair[0] != pair[1]} - set(both))
    rows: list[tuple[Any, ...]] = []
    edges = []
    for a, b in both:
        (there, n), (back, m) = seen[a, b], seen[b, a]
        wrong = too_soon(min(there, back), floors.get((a, b), 0))
        offset = (there - back) // 2 if wrong else 0
        rows.append((a, b, offset, there, back, min(n, m), "corrected" if wrong else "ok"))
        edges.append((there + back, a, b, offset))
    known = along_fastest(edges)
    shown: int | None
    for a, b in single:
        forth = (a, b) in seen
        least, windows = seen[a, b] if forth else seen[b, a]
        told = known.get(a, {}).get(b)
        left = least - (told or 0) * (1 if forth else -1)
        floor = floors.get((a, b), 0)
        if too_soon(left, floor) or left >= floor + IMPLAUSIBLE_US:
            shown, verdict = None, "flagged"
        else:
            shown, verdict = told or 0, "corrected" if told else "ok"
        ways = (least, None) if forth else (None, least)
        rows.append((a, b, shown, *ways, windows, verdict))
    return rows, known


def too_soon(least: int, floor: int) -> bool:
    """Sooner than links allow."""
    return least < floor - max(TOLERANCE_US, floor // 4)


def along_fastest(edges: list[tuple[int, int, int, int]]) -> dict[int, dict[int, int]]:
    """Broker to each other of its group: the other's clock less its own, over a fastest tree."""
    group: dict[int, set[int]] = {}
    tree: dict[int, list[Pair]] = {}
    for _, a, b, offset in sorted(edges):
        ga, gb = group.setdefault(a, {a}), group.setdefault(b, {b})
        if ga is gb:
            continue
        tree.setdefault(a, []).append((b, offset))
        tree.setdefault(b, []).append((a, -offset))
        ga |= gb
        for member in gb:
            group[member] = ga
    known = {}
    for start in group:
        told = {start: 0}
        waiting = [start]
        while waiting:
            here = waiting.pop()
            for other, offset in tree.get(here, ()):
                if other not in told:
                    told[other] = told[here] + offset
                    waiting.append(other)
        known[start] = told
    return known
