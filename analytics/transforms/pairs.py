"""What is known of pairs of brokers, in the driver: floors and clocks, as a table to join."""

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from analytics.schemas.fields import struct
from analytics.schemas.reports import REPORT_TABLES
from analytics.transforms.clocks import Clocks, OneWay, judge
from analytics.transforms.floors import Pair, floors, half_round_trips

PAIRS = struct(
    "origin long", "destination long", "floor_us long?", "offset_us long?", "quality string"
)


@dataclass(frozen=True, slots=True)
class PairFacts:
    """Floors between brokers (a < b) and the verdicts on their clocks."""

    flows: tuple[Pair, ...]
    floors_us: dict[Pair, int]
    clocks: Clocks

    def pairs(self, like: DataFrame) -> DataFrame:
        """PAIRS, one row for each (origin, destination) that had deliveries."""
        rows = [self._row(*flow) for flow in self.flows]
        return like.sparkSession.createDataFrame(rows, PAIRS)

    def _row(self, origin: int, destination: int) -> tuple[int, int, int | None, int | None, str]:
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
        return like.sparkSession.createDataFrame(rows, REPORT_TABLES["clocks"])


def pair_facts(pair_windows: DataFrame, links: DataFrame) -> PairFacts:
    """From the partials of these names. Runs two small jobs: brokers are few."""
    ways = pair_windows.groupBy("origin", "destination").agg(
        F.min("min_us").alias("least_us"), F.count_distinct("window_us").alias("windows")
    )
    seen = {
        (row.origin, row.destination): OneWay(row.least_us, row.windows) for row in ways.collect()
    }
    measured = {
        (row.broker, row.neighbour): row.round_trip_us
        for row in links.where(F.col("round_trip_us").isNotNull()).collect()
    }
    floors_us = floors(half_round_trips(measured))
    return PairFacts(tuple(sorted(seen)), floors_us, judge(seen, floors_us))
