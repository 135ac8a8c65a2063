"""What the stream holds in memory and on disk, without Spark."""

from collections import defaultdict
from fractions import Fraction
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from federator_analytics.jobs import folded, state
from federator_analytics.jobs.state import State
from federator_analytics.transforms import counted
from federator_analytics.transforms.clocks import OneWay, pair_facts
from federator_analytics.transforms.delays import FLOW
from federator_analytics.transforms.load import QUIET_US
from federator_analytics.transforms.partials import BESIDE, PARTIALS, WIDE, Partial
from hypothesis import given
from hypothesis import strategies as st

BROKERS = st.integers(1, 3)
DELAYS = st.lists(
    st.tuples(
        BROKERS, BROKERS, st.integers(1, 2), st.sampled_from(["mesh", "shortest-path"]),
        st.one_of(st.integers(-50, 50), st.integers(-(10**12), 10**12)), st.integers(1, 9),
    ),
    max_size=60,
)  # fmt: skip
FLOWS = counted.empty(Partial((*FLOW, "value_us"), sums=("publications",))).schema
WINDOWED = Partial(("window_us", "origin", "value_us"), sums=("publications",))


def quantile(values, percent):
    """The least value whose share of all is at least the percent."""
    values = sorted(values)
    return next(v for i, v in enumerate(values, 1) if Fraction(i, len(values)) * 100 >= percent)


@given(DELAYS)
def test_quantiles_over_scopes_are_those_of_each_scopes_own_list(rows):
    delays = [
        {"origin": o, "destination": d, "hops": h, "qos": 0, "strategy": s}
        | {"value_us": us, "publications": n}
        for o, d, h, s, us, n in rows
    ]
    told = pa.Table.from_pylist(delays, FLOWS)
    ranked = counted.of_flows()
    seen = {(o, d): OneWay(min(us for a, b, *_, us, _ in rows if (a, b) == (o, d)), 1)
            for o, d, *_ in rows}  # fmt: skip
    facts = pair_facts(seen, {})

    for piece in (told[: len(told) // 2], told[len(told) // 2 :]):
        ranked.add(piece)
    found = counted.over_scopes(ranked, facts.judged()).to_pylist()

    lists = defaultdict(list)
    judged = {(row[0], row[1]): row[3:] for row in facts.rows()}
    for o, d, h, s, us, n in rows:
        offset_us, quality = judged[o, d]
        values = [us - (offset_us or 0)] * n
        lists["pair", o, d, None, None, None] += values
        lists["pair_hops", o, d, h, 0, s] += values
        if quality != "flagged":
            lists["all", None, None, None, None, None] += values
            lists["hops", None, None, h, None, None] += values
            lists["strategy", None, None, None, None, s] += values
    assert {tuple(row.values()) for row in found} == {
        (*key, *(quantile(values, percent) for percent in (50, 95, 99)))
        for key, values in lists.items()
    }


def test_eight_parts_become_one_that_holds_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(state, "FILE_ROWS_MAX", 50)
    kept = {WIDE: WINDOWED, "agents": Partial(("broker",), sums=("cpu_us",))}
    parts = State(tmp_path, kept)
    for batch in range(9):
        delays = [(batch % 3, origin, batch, 1) for origin in range(10 + 40 * (batch == 4))]
        write(tmp_path, batch, WIDE, delays, ("n0", "n1", "n2", "sum0"))
        write(tmp_path, batch, "agents", [(batch % 2, 5), (7, batch)], ("n0", "sum0"))
    before = rows_of(parts, WIDE)

    parts.merge_if_due(6)
    assert len(parts.spans()) == 9
    parts.merge_if_due(8)

    assert [(span.first, span.last) for span in parts.spans()] == [(0, 7), (8, 8)]
    assert rows_of(parts, WIDE) == before
    assert rows_of(parts, WIDE, {"window_us": [1]}) == [row for row in before if row[0] == 1]
    assert rows_of(parts, "agents") == [(0, 5), (0, 20), (1, 20), (7, 8), (7, 28)]
    files = sorted((tmp_path / "span=0-7" / f"part={WIDE}").glob("*.parquet"))
    assert [pq.read_metadata(path).num_rows for path in files] == [40, 50, 30]


def write(home, batch, part, rows, slots):
    folder = home / f"span={batch}-{batch}" / f"part={part}"
    folder.mkdir(parents=True)
    columns = dict(zip(slots, map(list, zip(*rows, strict=True)), strict=True))
    pq.write_table(pa.table(columns), folder / "part-0.parquet")


def rows_of(parts, part, among=None):
    told = parts.rows(parts.spans(), part, among)
    return sorted(tuple(row.values()) for row in told.to_pylist())


def test_windows_of_which_delays_come_late_are_those_of_all_delays(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(folded, "WINDOWS_HELD", 1)
    kept = PARTIALS | BESIDE
    parts, taken = State(tmp_path, kept), folded.Folded(kept)
    batches = [[(0, 5), (0, 9)], [(10, 1), (20, 2)], [(0, 7), (20, 4)], [(10, 3), (0, 6)]]
    for batch, rows in enumerate(batches):
        delays = [(window, 1, 2, 1, 0, us, "mesh", 1) for window, us in rows]
        write(tmp_path, batch, WIDE, delays, ("n0", "n1", "n2", "n3", "n4", "n5", "t0", "sum0"))
        taken.take(parts)

    shown = taken.found(spark, pair_facts({(1, 2): OneWay(1, 1)}, {})).windows().toArrow()

    lists = defaultdict(list)
    for window, us in chain.from_iterable(batches):
        lists[window].append(us)
    assert {
        (row["window_us"], row["publications"], row["delay_us_p50"], row["delay_us_p95"])
        for row in shown.to_pylist()
    } == {(w, len(us), quantile(us, 50), quantile(us, 95)) for w, us in lists.items()}


def stories_of(times_us):
    """(first, last) of each disturbance."""
    told = []
    for time_us in sorted(times_us):
        if told and time_us - told[-1][1] <= QUIET_US:
            told[-1][1] = time_us
        else:
            told.append([time_us, time_us])
    return told


@given(st.lists(st.lists(st.integers(0, 40).map(lambda s: s * 1_000_000), max_size=4), max_size=8))
def test_disturbances_before_the_first_that_a_new_event_is_of_stay_as_they_were(batches):
    times_us, told = [], []
    for new_us in batches:
        times_us += new_us

        since_us = folded.unsettled_since(np.array(times_us, np.int64), np.array(new_us, np.int64))

        settled = [story for story in told if story[0] < since_us]
        told = settled + stories_of(time_us for time_us in times_us if time_us >= since_us)
        assert told == stories_of(times_us)
