"""All that the stream has folded, merged, in the driver's memory: what its tables are made of.

A part is read once, when it is new. Sums are added; what has to be sorted is sorted again only
where the new part has rows: the delays of its windows, the ways of its sampled frames. So a refresh
costs what is new, and what it costs to make a table of all; however late a record is, it lands in
its own window. What is held grows as the module ``stream`` says, but for the delays: of them one
row for each value that a flow has had, whenever it was.
"""

from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from analytics.jobs.state import FILE_ROWS_MAX, UNMERGED, Span, State
from analytics.transforms import counted, hop_times
from analytics.transforms.clocks import OneWay
from analytics.transforms.folding import merged
from analytics.transforms.pairs import PairFacts, pair_facts
from analytics.transforms.partials import WIDE, Partial
from analytics.transforms.report import Quantiles

WINDOWS_AT_ONCE = 16
"""Whose delays are in memory together: at 50,000 records/s some 100,000 rows each."""
_SORTED = frozenset(("hops", "pair_windows"))
"""Partials of which tables are made here, not in Spark."""
_FRAME = list(hop_times.FRAME)


class Folded:
    """What was taken of a state. ``newest``: the last micro-batch that is in it; -1 for none."""

    def __init__(self, kept: Mapping[str, Partial]) -> None:
        self.newest = -1
        self._kept = {name: how for name, how in kept.items() if name not in UNMERGED}
        self._parts = {name: counted.empty(how) for name, how in self._kept.items()}
        self._delays = counted.empty(counted.DELAYS)
        self._windows = counted.over_windows(counted.empty(kept[WIDE]))
        self._steps = counted.empty(counted.STEPS)
        self._fresh: set[int] = set()
        self._shown: pa.Table | None = None
        self._shown_for: dict[tuple[int, int], tuple[int | None, str]] = {}

    def take(self, state: State, spark: SparkSession) -> None:
        """Take what the state has beyond ``newest``."""
        spans = state.spans()
        new = [span for span in spans if span.last > self.newest]
        assert all(span.first > self.newest for span in new), "merged before it was taken"
        for name, how in self._kept.items():
            if rows := state.rows(new, name):
                self._parts[name] = merged(how, pa.concat_tables([self._parts[name], rows]))
                if name == "hops":
                    self._take_frames(rows, spark)
        self._take_delays(state, spans, new)
        self.newest = spans[-1].last if spans else -1

    def parts(self, spark: SparkSession) -> dict[str, DataFrame]:
        """What ``report.report_tables`` takes, each as one partition."""
        return {
            name: _one(spark, rows) for name, rows in self._parts.items() if name not in _SORTED
        }

    def facts(self) -> PairFacts:
        """As ``pairs.facts_of``."""
        ways = self._parts["pair_windows"].group_by(["origin", "destination"], use_threads=False)
        told = ways.aggregate([("min_us", "min"), ("window_us", "count")]).to_pylist()
        seen = {
            (row["origin"], row["destination"]): OneWay(row["min_us_min"], row["window_us_count"])
            for row in told
        }
        measured = {
            (row["broker"], row["neighbour"]): row["round_trip_us"]
            for row in self._parts["links"].to_pylist()
            if row["round_trip_us"] is not None
        }
        return pair_facts(seen, measured)

    def quantiles(self, spark: SparkSession, facts: PairFacts) -> Quantiles:
        """Of windows only those that ``whole`` wants anew."""
        judged = facts.judged()
        if any(judged[pair] != told for pair, told in self._shown_for.items()):
            self._shown = None  # other offsets: all delays are others
        self._shown_for = judged
        windows = self._windows
        if self._shown is not None:
            windows = windows.filter(_among(windows["window_us"], self._fresh))
        return Quantiles(
            _one(spark, counted.over_scopes(self._delays, judged)),
            _one(spark, windows),
            _one(spark, counted.over_steps(self._steps)),
        )

    def whole(self, over_time: pa.Table) -> pa.Table:
        """DELAY_OVER_TIME, of that of the windows that ``quantiles`` gave."""
        if self._shown is not None:
            kept = pc.invert(_among(self._shown["window_start"].cast(pa.int64()), self._fresh))
            over_time = pa.concat_tables([self._shown.filter(kept), over_time])
        self._shown, self._fresh = over_time, set()
        return over_time

    def _take_delays(self, state: State, spans: list[Span], new: list[Span]) -> None:
        touched: set[int] = set()
        waiting: list[pa.Table] = []
        for span in new:
            rows = state.rows([span], WIDE)
            touched |= set(rows["window_us"].unique().to_pylist())
            waiting.append(rows.select(self._delays.column_names))
            if span is new[-1] or sum(map(len, waiting)) > FILE_ROWS_MAX:
                self._delays = merged(counted.DELAYS, pa.concat_tables([self._delays, *waiting]))
                waiting.clear()
        tables = [self._windows.filter(pc.invert(_among(self._windows["window_us"], touched)))]
        found = sorted(touched)
        for start in range(0, len(found), WINDOWS_AT_ONCE):
            some = found[start : start + WINDOWS_AT_ONCE]
            tables.append(counted.over_windows(state.rows(spans, WIDE, {"window_us": some})))
        self._windows = pa.concat_tables(tables)
        self._fresh |= touched

    def _take_frames(self, rows: pa.Table, spark: SparkSession) -> None:
        """The ways of the frames that these rows are of, which may be known in part."""
        frames = rows.group_by(_FRAME, use_threads=False).aggregate([])
        of_frames = self._parts["hops"].join(frames, _FRAME, join_type="left semi")
        found = hop_times.steps(_one(spark, of_frames)).toArrow().select(counted.STEPS.columns)
        kept = self._steps.join(frames, _FRAME, join_type="left anti")
        self._steps = pa.concat_tables([kept, found])


def _among(column: pa.ChunkedArray, values: Iterable[int]) -> pa.ChunkedArray:
    return pc.is_in(column, pa.array(sorted(values), pa.int64()))


def _one(spark: SparkSession, rows: pa.Table) -> DataFrame:
    return spark.createDataFrame(rows).coalesce(1)
