"""Lines to partial aggregates, in a worker, against sums that are made one record at a time."""

import gzip
import json
from collections import Counter, defaultdict

import pyarrow as pa
import pytest
from federator_analytics.schemas.records import BUCKET_MAX, INSTANT_US_MAX
from federator_analytics.schemas.reports import WINDOW_S
from federator_analytics.sources.duplicates import marked
from federator_analytics.sources.lines import encode, parse, reason
from federator_analytics.transforms.folding import HELD, HELD_RECORDS, bucket_value_us, fold
from federator_analytics.transforms.partials import BESIDE, PARTIALS, slots_of
from hypothesis import given
from hypothesis import strategies as st

from tests.analytics.landing import AGENT, delivery, example, record, text

HOW = PARTIALS | BESIDE | {HELD: HELD_RECORDS}


def block(content, file="f", line=1):
    """A batch of BLOCKS, of one block."""
    columns = [pa.array([content]), pa.array([file], pa.string()), pa.array([line], pa.int64())]
    return pa.record_batch(columns, names=["content", "file", "line"])


def told_by(batches, held=None):
    """Part to its rows, by the names of its own columns."""
    rows = defaultdict(list)
    for batch in fold(batches, held=held or {}):
        for packed in batch.to_pylist():
            slots = slots_of(HOW[packed["part"]])
            rows[packed["part"]].append({name: packed[slot] for name, slot in slots.items()})
    return rows


KEYS = st.fixed_dictionaries(
    {
        "origin": st.integers(1, 3),
        "hops": st.integers(0, 2),
        "qos": st.integers(0, 2),
        "strategy": st.sampled_from(["mesh", "shortest-path"]),
        "base_us": st.integers(-(10**12), 10**12),
        "delay": st.lists(
            st.tuples(st.integers(0, BUCKET_MAX), st.integers(1, 5)).map(list), max_size=4
        ),
    }
)


@given(st.lists(KEYS, max_size=40), st.integers(1, 6))
def test_deliveries_add_up_to_what_is_counted_one_by_one(chosen, batches):
    records = []
    for row, keys in enumerate(chosen):
        some = sum(count for _, count in keys["delay"])
        seen = {"min_us": keys["base_us"], "max_us": keys["base_us"] + row, "sum_us": -7 * row}
        told = delivery(keys["origin"], [1]) | keys | seen | {"publications": some}
        records.append(record("deliveries", 9, batch=row // 5 + 1, row=row, **told))
    blocks = [block(text(records[start::batches]).encode()) for start in range(batches)]

    rows = told_by(blocks)

    weighed = Counter()
    sums, least, greatest = Counter(), {}, {}
    for told in records:
        flow = (told["origin"], 9, told["hops"], told["qos"], told["strategy"])
        window_us = told["at_us"] // (WINDOW_S * 10**6) * WINDOW_S * 10**6
        for bucket, count in told["delay"]:
            weighed[window_us, *flow, told["base_us"] + bucket_value_us(bucket)] += count
        sums[flow] += told["sum_us"]
        least[flow] = min(least.get(flow, 10**18), told["min_us"])
        greatest[flow] = max(greatest.get(flow, -(10**18)), told["max_us"])
    found = Counter()
    for one in rows["delays"]:
        found[tuple(one[key] for key in PARTIALS["delays"].keys)] += one["publications"]
    assert found == weighed
    merged = {
        tuple(one[k] for k in PARTIALS["deliveries"].keys[:-1]): one for one in rows["deliveries"]
    }
    assert len(merged) == len(rows["deliveries"]) == len(least)
    for flow, one in merged.items():
        assert one["sum_us_high"] * 2**32 + one["sum_us_low"] == sums[flow]
        assert (one["min_us"], one["max_us"]) == (least[flow], greatest[flow])
    assert sum(one["records"] for one in rows["agents_seen"]) == len(records)
    counted = sum(one["bits"].bit_count() for one in rows["marks"])
    assert counted == len(records)


@given(
    st.lists(
        st.tuples(st.integers(1, 2), st.sampled_from("ab"), st.integers(1, 3), st.integers(0, 200))
    )
)
def test_a_mark_stands_for_the_rows_that_were_seen_and_counts_copies(identities):
    kinds = [pa.int64(), pa.string(), pa.int64(), pa.int64()]
    columns = list(zip(*identities, strict=True)) or [[], [], [], []]
    arrays = [pa.array(list(column), kind) for column, kind in zip(columns, kinds, strict=True)]
    rows = pa.table(arrays, names=["broker", "spool", "batch", "row"])

    found = marked(rows).to_pylist()

    seen = {
        (one["broker"], one["spool"], one["batch"], one["word"] * 62 + bit)
        for one in found
        for bit in range(62)
        if one["bits"] >> bit & 1
    }
    assert seen == set(identities)
    assert sum(one["records"] for one in found) == len(identities)
    assert len({tuple(one[key] for key in BESIDE["marks"].keys) for one in found}) == len(found)


FLOATS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | FLOATS | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)
GOOD = [
    *(one for lines in example(seconds=1).values() for one in lines),
    record("deliveries", 2, batch=1, row=0, **delivery(1, [10, 20])),
    record("agents", 1, batch=1, row=1, **(AGENT | {"clients": None})),
]


@given(st.sampled_from(GOOD), st.data())
def test_a_line_is_taken_just_if_no_rule_is_broken(good, data):
    key = data.draw(st.sampled_from([*good, "new"]))
    value = data.draw(
        JSON | st.just(good.get(key)) | st.integers(-1, 3) | st.just(INSTANT_US_MAX + 1)
    )
    line = json.dumps(good | {key: value})

    records, bad = parse(line.encode(), "f", 1)

    broken = reason(line)
    assert [one.reason for one in bad] == ([] if records else [broken])
    assert (broken == "not JSON") == bool(records)  # no rule is broken


def test_bad_lines_are_told_by_file_line_and_reason_and_cost_no_other():
    good = text(GOOD).encode().splitlines()
    harmed = [
        good[0],
        b"",
        b"lorem",
        good[1] + good[2],
        b"  ",
        good[3][:-9],
        b"\xff" + good[4],
        good[5],
        good[4][:-1] + b', "new": ' + b"[" * 4_000,
        b"[" * 4_000,
    ]

    records, bad = parse(b"\r\n".join(harmed), "f", 10)

    again = [json.loads(encode(one)) for one in records]
    assert [{key: told for key, told in one.items() if told is not None} for one in again] == [
        GOOD[0],
        GOOD[5],
    ]
    assert [(one.line, one.reason) for one in bad] == [
        (12, "not JSON"),
        (13, "not JSON"),
        (15, "truncated"),
        (16, "not JSON"),
        (18, "truncated"),
        (19, "not JSON"),
    ]
    assert bad[1].raw == (good[1] + good[2]).decode()[:1_000]


def test_a_flow_whose_name_is_longer_than_agents_make_it_is_no_record():
    told = next(one for one in GOOD if one["table"] == "flows")
    lines = text(told | {"flow": "\u20ac" * length} for length in (0, 1, 256, 257))

    records, bad = parse(lines.encode(), "f", 1)

    assert [len(one.flow) for one in records] == [1, 256]
    assert {one.line: one.reason for one in bad} == dict.fromkeys((1, 4), "out of range: flow")


@pytest.mark.parametrize("cut", [0, 40])
def test_of_a_compressed_file_that_is_cut_what_can_be_read_counts(cut):
    lines = text(GOOD)
    packed = gzip.compress(lines.encode())

    records, bad = parse(packed[: len(packed) - cut], "f.jsonl.gz", 1)

    if not cut:
        assert (len(records), bad) == (len(GOOD), [])
    else:
        assert 0 < len(records) < len(GOOD)
        assert bad[0].reason == "truncated"


def test_records_of_batches_that_are_held_are_passed_on_and_not_folded():
    records = [record("announcements", 1, batch=n, row=0, announcements=n) for n in (1, 2, 3)]
    lines = block(text(records).encode())

    rows = told_by([lines], held={records[0]["spool"]: frozenset([2])})

    assert [(one["batch"], json.loads(one["raw"])["announcements"]) for one in rows[HELD]] == [
        (2, 2)
    ]
    assert [one["announcements"] for one in rows["announcements"]] == [4]
    assert {one["batch"] for one in rows["marks"]} == {1, 3}
