"""All that the stream has folded, merged, in the driver's memory: what its tables are made of.

A part is read once, when it is new. Sums are added; delays stay in order, and new ones slide in
(``transforms.counted``); only the ways of new sampled frames are climbed again. So a refresh
costs what is new, and what it costs to make a table of all; however late a record is, it lands in
its own window. What is held grows as the module ``stream`` says, but for the delays: of them one
row for each value that a flow has had, whenever it was.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from federator_analytics.jobs.state import UNMERGED, Span, State
from federator_analytics.jobs.tables import Windows
from federator_analytics.transforms import counted, hop_times
from federator_analytics.transforms.clocks import Pair, PairFacts, pair_facts
from federator_analytics.transforms.folding import Whole, merged, whole
from federator_analytics.transforms.load import QUIET_US, STRUCTURAL
from federator_analytics.transforms.loss import book_of, counts_of, judged
from federator_analytics.transforms.partials import WIDE, Partial
from federator_analytics.transforms.report import (
    EVENTS_READ,
    GROWING,
    OF_PARTS,
    Found,
    quarantine_counts,
    quarantine_lines,
)

WINDOWS_AT_ONCE = 16
"""Windows whose delays are read together: at 50,000 records/s some 100,000 rows each."""
WINDOWS_HELD = 16
"""Windows whose delays stay in memory: those of others are read again if some come late."""
_RANKED = frozenset(("pair_windows", "round_trips"))
"""Partials of which only what is found in them is kept, and their values in order."""
_PART_OF = {
    "happened": "events",
    "unsettled": "events",
    "quarantine_counts": "quarantine",
    "median_round_trips": "round_trips",
}
"""Parts of tables that are made of a partial of another name."""
_FRAME = list(hop_times.FRAME)


class Folded:
    """What was taken of a state. ``newest``: the last micro-batch that is in it; -1 for none."""

    def __init__(self, kept: Mapping[str, Partial]) -> None:
        self.newest = -1
        self._kept = {name: how for name, how in kept.items() if name not in UNMERGED}
        self._new: dict[str, pa.Table] = {}
        self._parts = {
            name: counted.empty(how) for name, how in self._kept.items() if name not in _RANKED
        }
        self._round_trips, self._pairs = counted.of_links(), counted.of_pairs()
        self._least = counted.empty(counted.LEAST)
        self._delays, self._held = counted.of_flows(), counted.of_windows()
        self._recent: dict[int, None] = {}
        self._no_window = counted.over_windows(self._held)
        self._windows: dict[int, pa.Table] = {}
        self._steps = counted.empty(counted.STEPS)
        self._fresh: set[int] = set()
        self._late: set[int] = set()
        self._stories: pa.Table | None = None
        self._unsettled_us = 0
        self._judged: dict[Pair, tuple[int | None, str]] | None = None
        self._anew = True

    def take(self, state: State) -> None:
        """Take what the state has beyond ``newest``."""
        spans = state.spans()
        new = [span for span in spans if span.last > self.newest]
        assert all(span.first > self.newest for span in new), "merged before it was taken"
        self._new = {name: rows for name in self._kept if (rows := state.rows(new, name))}
        for name in self._new.keys() & self._parts.keys():
            every = pa.concat_tables([self._parts[name], self._new[name]])
            is_listed = name in GROWING  # few of its rows are alike
            how = self._kept[name]
            self._parts[name] = every.combine_chunks() if is_listed else merged(how, every)
        self._round_trips.add(counted.by_link(self._of_new("round_trips")))
        pairs = self._of_new("pair_windows")
        self._pairs.add(counted.with_one(pairs))
        least = pa.concat_tables([self._least, pairs.select(self._least.column_names)])
        self._least = merged(counted.LEAST, least)
        self._fresh, self._late = set(), set()
        for some in _at_once(new):
            self._take_delays(state, [span for span in spans if span < some[0]], some)
        self.newest = spans[-1].last if spans else -1

    def unchanged(self) -> list[str]:
        """Tables that what was taken last leaves as they were."""
        of_new = {*self._new, *(part for part, of in _PART_OF.items() if of in self._new)}
        return [name for name, (_, of) in OF_PARTS.items() if of_new.isdisjoint(of)]

    def parts(self, spark: SparkSession) -> Mapping[str, DataFrame]:
        """What ``report.report_tables`` takes, each as one partition.

        Of ``happened``, ``unsettled`` and ``quarantine`` what the tables on disk lack.
        """
        made: dict[str, Callable[[], DataFrame]] = {
            name: partial(_one, spark, rows) for name, rows in self._parts.items() if name != "hops"
        }
        events, bad = self._parts["events"], self._parts["quarantine"]
        told = events.filter(_among(events["kind"], EVENTS_READ))
        made |= {
            "events": lambda: _one(spark, told),
            "happened": lambda: _one(spark, self._of_new("events")),
            "unsettled": lambda: _one(spark, self._unsettled()),
            "median_round_trips": lambda: _one(spark, counted.over_links(self._round_trips)),
            "quarantine": lambda: quarantine_lines(_one(spark, self._of_new("quarantine"))),
            "quarantine_counts": lambda: quarantine_counts(quarantine_lines(_one(spark, bad))),
        }
        return _Parts(made)

    def facts(self) -> PairFacts:
        """The facts of all pairs, as ``clocks.facts_of`` finds them in a batch report."""
        measured = {
            (row["broker"], row["neighbour"]): row["round_trip_us"]
            for row in self._parts["links"].to_pylist()
            if row["round_trip_us"] is not None
        }
        return pair_facts(counted.seen(self._pairs, self._least), measured)

    def found(self, spark: SparkSession, facts: PairFacts) -> Found:
        """What is found in memory; of windows only those that ``windows`` names, if any."""
        judged, known = facts.judged(), self._judged
        # With other offsets all delays are others.
        self._anew = known is None or any(judged[pair] != told for pair, told in known.items())
        self._judged = judged
        wanted = sorted(self._windows if self._anew else self._fresh)
        windows = pa.concat_tables([self._no_window, *(self._windows[one] for one in wanted)])
        return Found(
            lambda: _one(spark, counted.over_scopes(self._delays, judged)),
            lambda: _one(spark, windows),
            lambda: _one(spark, counted.over_steps(self._whole_steps(spark))),
            lambda: _one(spark, self._loss(facts)),
        )

    def windows(self) -> Windows | None:
        """The windows of which ``delay_over_time`` is to be told anew; None for all."""
        return None if self._anew else Windows(self._fresh, self._recent.keys(), self._late)

    def convergence(self, told: pa.Table) -> pa.Table:
        """All of the table, of that of the part ``unsettled``."""
        if self._stories is not None:
            settled = pc.less(self._stories["started"].cast(pa.int64()), self._unsettled_us)
            told = pa.concat_tables([self._stories.filter(settled), told])
        self._stories = told
        return told

    def _loss(self, facts: PairFacts) -> pa.Table:
        parts = self._parts
        counts = counts_of(parts["offered"], parts["arrived"])
        return judged(counts, book_of(parts, facts))

    def _of_new(self, name: str) -> pa.Table:
        return self._new.get(name, counted.empty(self._kept[name]))

    def _unsettled(self) -> pa.Table:
        """Events of the first disturbance that a new one takes part in, and of all later ones."""
        every, new = (
            rows.filter(_among(rows["kind"], STRUCTURAL))
            for rows in (self._parts["events"], self._of_new("events"))
        )
        self._unsettled_us = unsettled_since(whole(every["at_us"]), whole(new["at_us"]))
        return every.filter(pc.greater_equal(every["at_us"], self._unsettled_us))

    def _take_delays(self, state: State, before: Sequence[Span], new: Sequence[Span]) -> None:
        rows = state.rows(new, WIDE)
        self._delays.add(rows)
        touched = sorted(rows["window_us"].unique().to_pylist())
        for start in range(0, len(touched), WINDOWS_AT_ONCE):
            some = touched[start : start + WINDOWS_AT_ONCE]
            self._held.add(rows.filter(_among(rows["window_us"], some)))
            known = self._windows.keys() & some
            if late := sorted(known - self._recent.keys()):  # those were let go
                self._held.add(state.rows(before, WIDE, {"window_us": late}))
                self._late.update(late)
            self._note_windows(some)

    def _note_windows(self, touched: Sequence[int]) -> None:
        """What was found of these; delays are held of the windows that were touched last."""
        found = counted.over_windows(self._held)
        for window_us in touched:
            self._recent.pop(window_us, None)
            self._recent[window_us] = None
            self._windows[window_us] = found.filter(_among(found["window_us"], [window_us]))
        if gone := list(self._recent)[:-WINDOWS_HELD]:
            self._held.drop("window_us", gone)
            for window_us in gone:
                del self._recent[window_us]
        self._fresh.update(touched)

    def _whole_steps(self, spark: SparkSession) -> pa.Table:
        """STEPS, climbed again of the frames that new rows are of, which may be known in part."""
        frames = self._of_new("hops").group_by(_FRAME, use_threads=False).aggregate([])
        if frames:
            of_frames = self._parts["hops"].join(frames, _FRAME, join_type="left semi")
            found = hop_times.steps(_one(spark, of_frames)).toArrow().select(counted.STEPS.columns)
            kept = self._steps.join(frames, _FRAME, join_type="left anti")
            self._steps = pa.concat_tables([kept, found])
        return self._steps


class _Parts(dict[str, DataFrame]):
    """Parts that are given to Spark when a table first wants them, from whichever thread."""

    def __init__(self, makers: Mapping[str, Callable[[], DataFrame]]) -> None:
        super().__init__()
        self._makers = makers
        self._lock = Lock()

    def __missing__(self, name: str) -> DataFrame:
        with self._lock:
            if name not in self:
                self[name] = self._makers[name]()
            return self[name]


def _at_once(spans: Sequence[Span]) -> list[list[Span]]:
    """Spans whose delays are in memory together: of a stream that starts there are large parts."""
    small = [span for span in spans if span.level == 0]
    return [*([span] for span in spans if span.level), *([small] if small else [])]


def unsettled_since(times_us: Whole, new_us: Whole) -> int:
    """The begin of the first disturbance with a new event in it; ``times_us``: of all events."""
    if len(new_us) == 0:
        return sys.maxsize
    before = np.sort(times_us[times_us <= new_us.min()])
    breaks = np.flatnonzero(np.diff(before) > QUIET_US)
    return int(before[breaks[-1] + 1] if len(breaks) else before[0])


def _among(column: pa.ChunkedArray, values: Iterable[int] | Iterable[str]) -> pa.ChunkedArray:
    return pc.is_in(column, pa.array(list(values), column.type))


def _one(spark: SparkSession, rows: pa.Table) -> DataFrame:
    # In one chunk: of a table that begins with two empty ones Spark reads nothing.
    return spark.createDataFrame(rows.combine_chunks()).coalesce(1)
