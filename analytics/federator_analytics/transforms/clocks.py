"""Clocks that disagree: found, and where traffic tells by how much, corrected.

A delay is the destination's clock minus the origin's. With clocks apart by o, traffic from a to b
seems to take d + o, and from b to a, d - o. Of the least delay seen each way o is half the
difference, as in NTP's clock filter (RFC 5905, 10): the fastest publication waited least,
so its ways are most alike.

A clock is believed until it says something impossible: an arrival sooner than the links allow
(before it was sent, where no link was measured), by more than ``TOLERANCE_US`` and a quarter of
that floor, for a floor is measured too. An offset that is too small to do so stays in the delays,
which it can at most raise to what two-way traffic leaves above the floor. Without traffic both
ways an impossible pair, or one where even the fastest took ``IMPLAUSIBLE_US``, takes the
difference of its brokers' clocks to others, along the fastest pairs (Kruskal), if that explains
it; else it is flagged.

The least delay that links allow between two brokers, the floor, is half the round trips along the
least path: a link's round trip is the smallest that either end measured, and paths are found as by
Floyd and Warshall. Brokers are few, so this happens in the driver, on collected links.
"""

from collections.abc import Mapping
from dataclasses import astuple, dataclass

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from federator_analytics.schemas.fields import here, struct
from federator_analytics.schemas.reports import REPORT_TABLES

Pair = tuple[int, int]


_APART_US = 2**60


def floors(round_trips_us: Mapping[Pair, int]) -> dict[Pair, int]:
    """The least that links take between any two brokers that are joined, a < b.

    ``round_trips_us``: the least that each (broker, neighbour) measured.
    """
    brokers = sorted({end for pair in round_trips_us for end in pair})
    place = {broker: at for at, broker in enumerate(brokers)}
    least = np.full((len(brokers), len(brokers)), _APART_US)
    for (one, other), round_trip_us in round_trips_us.items():
        a, b = place[one], place[other]
        least[a, b] = least[b, a] = min(least[a, b], round_trip_us // 2)
    for via in range(len(brokers)):
        np.minimum(least, least[:, [via]] + least[[via]], out=least)
    joined = np.argwhere(np.triu(least < _APART_US, 1)).tolist()
    return {(brokers[a], brokers[b]): int(least[a, b]) for a, b in joined}


TOLERANCE_US = 1_000
"""Scheduling and clock discipline move a least delay by less."""
IMPLAUSIBLE_US = 10_000_000


@dataclass(frozen=True, slots=True)
class OneWay:
    """What was seen of the publications from one broker to another."""

    least_us: int
    windows: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on the clocks of a and b (a < b). ``offset_us``: b's minus a's."""

    a: int
    b: int
    offset_us: int | None
    least_ab_us: int | None
    least_ba_us: int | None
    windows: int
    verdict: str


@dataclass(frozen=True, slots=True)
class Clocks:
    """The verdict on each pair, and each broker's clock relative to one of its group's."""

    verdicts: dict[Pair, Verdict]
    relative_us: dict[int, tuple[int, int]]
    """Broker to (its group's smallest id, its clock minus that one's)."""

    def offset_us(self, origin: int, destination: int) -> int | None:
        """The destination's clock minus the origin's; None where nothing tells."""
        pair = (min(origin, destination), max(origin, destination))
        if origin == destination:
            return 0
        if (verdict := self.verdicts.get(pair)) is not None:
            offset_us = verdict.offset_us
        else:
            offset_us = _between(self.relative_us, *pair)
        return -offset_us if offset_us is not None and origin > destination else offset_us


def judge(seen: Mapping[Pair, OneWay], floors_us: Mapping[Pair, int]) -> Clocks:
    """The clocks, of what was seen from (origin, destination), and the floors of pairs (a < b)."""
    pairs = sorted({(min(pair), max(pair)) for pair in seen if pair[0] != pair[1]})
    verdicts: dict[Pair, Verdict] = {}
    for a, b in pairs:
        there, back = seen.get((a, b)), seen.get((b, a))
        if there is not None and back is not None:
            verdicts[a, b] = _two_ways(a, b, there, back, floors_us.get((a, b), 0))
    relative_us = _relative(verdicts)
    for a, b in pairs:
        if (a, b) not in verdicts:
            known_us = _between(relative_us, a, b)
            verdicts[a, b] = _one_way(a, b, seen, known_us, floors_us.get((a, b), 0))
    return Clocks(verdicts, relative_us)


def _impossible(least_us: int, floor_us: int) -> bool:
    return least_us < floor_us - max(TOLERANCE_US, floor_us // 4)


def _two_ways(a: int, b: int, there: OneWay, back: OneWay, floor_us: int) -> Verdict:
    wrong = _impossible(min(there.least_us, back.least_us), floor_us)
    offset_us = (there.least_us - back.least_us) // 2 if wrong else 0
    windows = min(there.windows, back.windows)
    said = "corrected" if wrong else "ok"
    return Verdict(a, b, offset_us, there.least_us, back.least_us, windows, said)


def _one_way(
    a: int, b: int, seen: Mapping[Pair, OneWay], known_us: int | None, floor_us: int
) -> Verdict:
    there, back = seen.get((a, b)), seen.get((b, a))
    told = there or back
    assert told is not None
    sign = 1 if there else -1
    left_us = told.least_us - sign * (known_us or 0)
    believed = not _impossible(left_us, floor_us) and left_us < floor_us + IMPLAUSIBLE_US
    said = "flagged" if not believed else "corrected" if known_us else "ok"
    offset_us = (known_us or 0) if believed else None
    least_us = there.least_us if there else None, back.least_us if back else None
    return Verdict(a, b, offset_us, *least_us, told.windows, said)


def _relative(verdicts: Mapping[Pair, Verdict]) -> dict[int, tuple[int, int]]:
    """Each broker's clock along the tree of the fastest two-way pairs."""
    place = {broker: (broker, 0) for pair in verdicts for broker in pair}
    fastest = sorted(verdicts.values(), key=lambda v: (_round_us(v), v.a, v.b))
    for told in fastest:
        (group_a, us_a), (group_b, us_b) = place[told.a], place[told.b]
        if group_a == group_b:
            continue
        shift_us = us_a + (told.offset_us or 0) - us_b
        kept, gone, shift_us = (
            (group_a, group_b, shift_us) if group_a < group_b else (group_b, group_a, -shift_us)
        )
        for broker, (group, us) in place.items():
            if group == gone:
                place[broker] = (kept, us + shift_us)
    return place


def _round_us(verdict: Verdict) -> int:
    return (verdict.least_ab_us or 0) + (verdict.least_ba_us or 0)


def _between(relative_us: Mapping[int, tuple[int, int]], a: int, b: int) -> int | None:
    """b's clock minus a's, if both are of one group."""
    here, there = relative_us.get(a), relative_us.get(b)
    if here is None or there is None or here[0] != there[0]:
        return None
    return there[1] - here[1]


PAIRS = struct("origin long, destination long, floor_us long?, offset_us long?, quality string")
PairRow = tuple[int, int, int | None, int | None, str]
Judged = tuple[int | None, str]
"""(offset_us, quality) of a pair."""


@dataclass(frozen=True, slots=True)
class PairFacts:
    """Floors between brokers (a < b) and the verdicts on their clocks."""

    flows: tuple[Pair, ...]
    floors_us: dict[Pair, int]
    clocks: Clocks

    def pairs(self, like: DataFrame) -> DataFrame:
        """PAIRS, one row for each (origin, destination) that had deliveries."""
        return here(like.sparkSession, self.rows(), PAIRS)

    def rows(self) -> list[PairRow]:
        """PAIRS, in the driver."""
        return [self._row(*flow) for flow in self.flows]

    def judged(self) -> dict[Pair, Judged]:
        """The verdict on each (origin, destination)."""
        return {
            (origin, destination): (offset_us, quality)
            for origin, destination, _, offset_us, quality in self.rows()
        }

    def _row(self, origin: int, destination: int) -> PairRow:
        pair = (min(origin, destination), max(origin, destination))
        offset_us = self.clocks.offset_us(origin, destination)
        verdict = self.clocks.verdicts.get(pair)
        floor_us = 0 if origin == destination else self.floors_us.get(pair)
        return origin, destination, floor_us, offset_us, verdict.verdict if verdict else "ok"

    def clock_table(self, like: DataFrame) -> DataFrame:
        rows = [astuple(verdict) for _, verdict in sorted(self.clocks.verdicts.items())]
        return here(like.sparkSession, rows, REPORT_TABLES["clocks"])


def facts_of(pair_windows: DataFrame, links: DataFrame) -> PairFacts:
    """The facts, from the partials of these names. Runs two small jobs: brokers are few."""
    ways = pair_windows.groupBy("origin", "destination").agg(
        F.min("min_us").alias("least_us"), F.count(F.lit(1)).alias("windows")
    )
    seen = {
        (row.origin, row.destination): OneWay(row.least_us, row.windows) for row in ways.collect()
    }
    measured = {
        (row.broker, row.neighbour): row.round_trip_us
        for row in links.where(F.col("round_trip_us").isNotNull()).collect()
    }
    return pair_facts(seen, measured)


def pair_facts(seen: Mapping[Pair, OneWay], round_trips_us: Mapping[Pair, int]) -> PairFacts:
    """The facts, from what was seen of (origin, destination) and the least round trips of links."""
    floors_us = floors(round_trips_us)
    return PairFacts(tuple(sorted(seen)), floors_us, judge(seen, floors_us))
