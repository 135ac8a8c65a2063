"""What is known of pairs of brokers, in the driver: floors and clocks, as a table to join."""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from analytics.schemas.fields import here, struct
from analytics.schemas.reports import REPORT_TABLES
from analytics.transforms.clocks import Clocks, OneWay, Pair, floors, half_round_trips, judge

PAIRS = struct(
    "origin long", "destination long", "floor_us long?", "offset_us long?", "quality string"
)
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
        """CLOCKS."""
        rows = [
            (v.a, v.b, v.offset_us, v.least_ab_us, v.least_ba_us, v.windows, v.verdict)
            for _, v in sorted(self.clocks.verdicts.items())
        ]
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
    floors_us = floors(half_round_trips(round_trips_us))
    return PairFacts(tuple(sorted(seen)), floors_us, judge(seen, floors_us))
