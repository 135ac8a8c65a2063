"""Quantiles of delays that stay in arrays, against those of one sorted list."""

import pyarrow as pa
import pyarrow.compute as pc
from federator_analytics.jobs import report
from federator_analytics.transforms import counted
from federator_analytics.transforms.chunks import (
    ARRAYS,
    CHUNKS,
    FLOWS,
    RECORDS_MIN,
    delays_of,
    fold_in_chunks,
)
from federator_analytics.transforms.delays import FLOW, MERGING, PERCENTS
from federator_analytics.transforms.folding import fold, merged
from federator_analytics.transforms.partials import DELAYS, PARTIALS, WIDE, Partial, slots_of
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from tests.analytics.landing import delivery, example, record, text
from tests.analytics.test_folding import block

JUDGED = {(1, 3): (None, "ok"), (2, 3): (-2_500, "corrected"), (1, 4): (None, "flagged")}
DELIVERIES = st.lists(
    st.tuples(
        st.sampled_from(sorted(JUDGED)),
        st.integers(0, 2),
        st.sampled_from(["mesh", "shortest-path"]),
        st.integers(-3_000, 9_000),
        st.lists(st.tuples(st.integers(0, 600), st.integers(1, 5)).map(list), max_size=4),
    ),
    max_size=40,
)


def records_of(chosen):
    told = []
    for row, ((origin, destination), hops, strategy, base_us, delay) in enumerate(chosen):
        keys = {"hops": hops, "strategy": strategy, "base_us": base_us, "delay": delay}
        keys["publications"] = sum(count for _, count in delay)
        seconds = row // 3 * 40  # some windows
        values = delivery(origin, [1]) | keys | {"qos": row % 2}
        told.append(record("deliveries", destination, batch=1, row=row, **values))
        told[-1]["at_us"] += seconds * 10**6
    return told


def rows_of(batches, part, how, *more):
    """The rows of one partial, by the names of its own columns."""
    slots = slots_of(how)
    every = pa.Table.from_batches(batches, None if batches else to_arrow_schema(CHUNKS))
    rows = every.filter(pc.equal(every["part"], part))
    return pa.table({name: rows[slots.get(name, name)] for name in (*how.columns, *more)})


def plain(blocks):
    batches = [batch for rows in fold(blocks, {}) for batch in rows.to_batches()]
    return rows_of(batches, WIDE, PARTIALS[WIDE])


def in_arrays(blocks):
    return rows_of(list(fold_in_chunks(blocks, {})), WIDE, FLOWS, *ARRAYS)


def as_set(rows, names):
    return {tuple(row[name] for name in names) for row in rows.to_pylist()}


@given(DELIVERIES, st.integers(1, 3))
def test_arrays_hold_the_rows_that_plain_folding_makes(chosen, blocks):
    records = records_of(chosen)
    lines = [block(text(records[start::blocks]).encode()) for start in range(blocks)]

    flows = in_arrays(lines)

    assert len(flows) == len(as_set(flows, FLOW))  # one row of each flow of a chunk
    both = (merged(DELAYS, rows) for rows in (delays_of(flows), plain(lines)))
    assert len({frozenset(as_set(rows, DELAYS.columns)) for rows in both}) == 1


@given(DELIVERIES, DELIVERIES)
def test_two_looks_find_what_one_sort_of_everything_finds(first, second):
    """Each list is a chunk of its own; what Spark does between is done here by hand."""
    blocks = [[block(text(records_of(chosen)).encode())] for chosen in (first, second)]
    delays = pa.concat_tables([plain(of_chunk) for of_chunk in blocks])
    flows = pa.concat_tables([in_arrays(of_chunk) for of_chunk in blocks])
    judged = with_verdicts(flows)

    found = [report._of_pair(rows) for rows in by_pair(judged)]

    none = to_arrow_schema(report.FOUND).empty_table()
    every = pa.concat_tables([none, *found], promote_options="default")
    parts = {
        name: every.filter(pc.equal(every["part"], name)) for name in (report.WINDOWS, report.STEPS)
    }
    windows = ("window_us", *FLOW[:2], "strategy", "publications", *PERCENTS)
    of_windows, of_flows = counted.of_windows(), counted.of_flows()
    of_windows.add(delays)
    of_flows.add(delays)
    assert as_set(parts["windows"], windows) == as_set(counted.over_windows(of_windows), windows)
    steps = merged(report._STEP, parts["steps"])
    sought = report._sought(steps)
    near = list(report._values_near(judged.combine_chunks().to_batches(), sought))
    how = report._VALUE
    empty = None if near else counted.empty(how).schema
    values = merged(how, pa.Table.from_batches(near, empty))
    over_pairs = report._over_pairs(steps, sought, values)
    scopes = ("scope", *FLOW, *PERCENTS)
    expected = as_set(counted.over_scopes(of_flows, JUDGED), scopes)
    assert as_set(over_pairs, scopes) == {row for row in expected if row[0] in MERGING}
    of_pairs = every.filter(pc.is_in(every["part"], pa.array(["pair", "pair_hops"])))
    told = of_pairs.rename_columns({"part": "scope"})
    assert as_set(told, scopes) == {row for row in expected if row[0] not in MERGING}


def with_verdicts(flows):
    """As a join with PAIRS gives them."""
    ways = zip(flows["origin"].to_pylist(), flows["destination"].to_pylist(), strict=True)
    verdicts = [JUDGED[way] for way in ways]
    offsets = pa.array([offset for offset, _ in verdicts], pa.int64())
    qualities = pa.array([quality for _, quality in verdicts], pa.string())
    return flows.append_column("offset_us", offsets).append_column("quality", qualities)


def by_pair(flows):
    for origin, destination in JUDGED:
        same = pc.and_(
            pc.equal(flows["origin"], origin), pc.equal(flows["destination"], destination)
        )
        if len(rows := flows.filter(same)):
            yield rows


def test_a_chunk_is_whole_blocks_and_names_its_files():
    lines = text(example(seconds=9)[1]).encode()
    per_block = lines.count(b"\n")
    needed = -(-RECORDS_MIN // per_block)
    blocks = [block(lines, file=f"f{number}") for number in range(needed + 1)]

    told = pa.Table.from_batches(fold_in_chunks(blocks, {}))

    files = told.filter(pc.equal(told["part"], "files"))
    slot = slots_of(Partial(("file",)))["file"]
    chunks = dict(zip(files[slot].to_pylist(), files["chunk"].to_pylist(), strict=True))
    assert list(chunks) == [f"f{number}" for number in range(needed + 1)]
    assert len({chunks[f"f{number}"] for number in range(needed)}) == 1
    assert chunks[f"f{needed}"] != chunks["f0"]
    assert set(told["chunk"].to_pylist()) == set(chunks.values())
