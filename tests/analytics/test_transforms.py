"""Report tables of hand-made rows against stupid Python computations."""

from collections import defaultdict

import pyarrow as pa
import pytest
from federator_analytics.jobs.staging import BYTES_PER_PARTITION, partitions_for
from federator_analytics.schemas.records import COUNT_MAX
from federator_analytics.sources.lines import reason
from federator_analytics.transforms.costs import control_by_kind
from federator_analytics.transforms.delays import weighted_quantiles
from federator_analytics.transforms.folding import bucket_value_us, fold
from federator_analytics.transforms.hop_times import hop_times, step_quantiles, steps
from federator_analytics.transforms.load import FLOWS_MAX, brokers, convergence, flows, span
from federator_analytics.transforms.partials import PACKED, PARTIALS, merged_parts, unpack
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.analytics.landing import AGENT, START_US, bucket_of, delivery, example, record, text
from tests.analytics.test_folding import block

PERCENTS = {"p50": 50, "p95": 95, "p99": 99}


def folded(spark, records):
    """PACKED of these records, as a worker folds them."""
    lines = block(text(records).encode(), file=None, line=None)
    rows = pa.concat_tables(fold([lines], held={}))
    assert "quarantine" not in rows["part"].to_pylist()
    return spark.createDataFrame(rows, PACKED)


def parts(spark, records):
    packed = merged_parts(folded(spark, records))
    return {name: unpack(packed, name, how) for name, how in PARTIALS.items()}


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdefgh"), st.integers(-(10**12), 10**12), st.integers(1, 9)),
        min_size=1,
        max_size=200,
    )
)
@settings(
    max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_quantiles_are_those_of_the_list_with_each_value_as_often_as_it_weighs(spark, rows):
    frame = spark.createDataFrame(rows, "key string, value long, weight long")

    found = weighted_quantiles(
        frame, keys=["key"], value="value", weight="weight", percents=PERCENTS
    ).collect()

    spread = defaultdict(list)
    for key, value, weight in rows:
        spread[key] += [value] * weight
    expected = set()
    for key, values in spread.items():
        values.sort()
        picked = [values[-(-len(values) * q // 100) - 1] for q in PERCENTS.values()]
        expected.add((key, *picked))
    assert {tuple(row) for row in found} == expected


@given(st.integers(0, 10**11))
def test_a_buckets_value_is_within_one_percent_of_what_it_counts(us):
    assert abs(bucket_value_us(bucket_of(us)) - us) <= max(0.01 * us + 0.5, 1)


def test_partials_of_two_halves_merge_into_the_partials_of_the_whole(spark):
    told = [line for lines in example(seconds=3).values() for line in lines]
    half, other, whole = folded(spark, told[::2]), folded(spark, told[1::2]), folded(spark, told)

    both, at_once = merged_parts(half.union(other)), merged_parts(whole)

    assert {row.part for row in at_once.select("part").distinct().collect()} == {
        *PARTIALS,
        "marks",
    } - {"clients"}
    assert normal(both) == normal(at_once)


def normal(table):
    """Rows in an order of their own."""
    return sorted(repr(tuple(row)) for row in table.collect())


@pytest.mark.parametrize(("size", "partitions"), [(0, 1), (BYTES_PER_PARTITION + 1, 2)])
def test_a_report_is_planned_for_the_bytes_of_its_files(spark, tmp_path, size, partitions):
    (tmp_path / "part=some").mkdir()
    (tmp_path / "part=some" / "a b.txt").write_bytes(b"x" * size)
    (tmp_path / "part=more").mkdir()
    (tmp_path / "part=more" / "c.txt").write_bytes(b"x" * 3 * BYTES_PER_PARTITION)
    limit = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "8")

    files = spark.read.text(str(tmp_path))
    found, of_all = partitions_for(files, but="part=more"), partitions_for(files)

    spark.conf.set("spark.sql.shuffle.partitions", limit)
    assert found == partitions
    assert of_all == (5 if size else 3)


def test_events_that_follow_each_other_closely_are_one_disturbance(spark):
    def event(broker, kind, at_ms):
        at_us = START_US + at_ms * 1_000
        return record("events", broker, batch=1, row=at_ms, kind=kind, at_us=at_us)

    told = [
        event(1, "link_down", 0),
        event(2, "parent_changed", 2_900),
        event(3, "core_changed", 5_000),
        event(1, "takeover", 8_001),
        event(1, "spool_dropped", 9_000),
    ]

    found = convergence(parts(spark, told)["events"]).collect()

    assert {(row.what, row.duration_us, row.brokers) for row in found} == {
        ("link_down", 5_000_000, 3),
        ("takeover", 0, 1),
    }


def test_a_hop_between_clocks_that_nothing_compares_is_flagged_where_one_is_disputed(spark):
    hour_us = 3_600_000_000
    passed = [(1, 0, None, 0), (2, 1, 1, 2_000 - hour_us), (3, 2, 2, 5_000), (4, 3, 3, 6_000)]
    told = [
        record("hops", broker, batch=1, row=0, at_us=START_US + us, hop=hop, sender=sender)
        | {"origin": 1, "origin_epoch": 1, "seq": 1, "custody": 0}
        | {"origin_time_us": START_US, "qos": 0}
        for broker, hop, sender, us in passed
    ]
    pairs = spark.createDataFrame([(1, 4)], "origin long, destination long")
    hops = parts(spark, told)["hops"]

    found = step_quantiles(steps(hops, pairs))
    rows = hop_times(found, pairs, {1: (1, 0), 2: (1, -hour_us)}).collect()

    assert {row.hop: row.quality for row in rows} == {1: "corrected", 2: "flagged", 3: "ok"}


def test_missing_batches_are_those_that_a_reader_never_had(spark):
    told = [
        record("agents", 1, batch=1, row=0, **AGENT),
        record("events", 1, batch=2, row=0, kind="spool_dropped", value=70),
        record("events", 1, batch=3, row=0, kind="collector_gap", value=4),
        record("events", 2, batch=4, row=0, kind="collector_skip", value=4_096),
        record("events", 2, batch=5, row=0, kind="batches_missed", value=2),
    ]
    made = parts(spark, told)
    copies = spark.createDataFrame([], "federation string, records_twice long")

    (row,) = span(made["agents_seen"], made["events"], copies).collect()

    assert row.dropped_batches == 6


def test_what_an_agent_does_not_know_is_null_and_no_fault(spark):
    flood = {"neighbour": None, "kind": "core_ann", "messages": 3, "bytes": 90, "direction": "out"}
    told = [
        record("control", 1, batch=1, row=0, **flood),
        record("agents", 1, batch=1, row=1, **(AGENT | {"clients": None, "rss_bytes": None})),
    ]
    kinds = control_by_kind(parts(spark, told)["control"]).collect()

    assert [tuple(row) for row in kinds] == [(1, None, "core_ann", 3, 90)]


def test_a_broker_bears_the_name_that_it_told_last(spark):
    told = [
        record("agents", broker, batch=batch, row=0, at_us=batch * 1_000_000, **(AGENT | named))
        for broker, batch, named in (
            (1, 2, {"name": "hall"}),
            (1, 3, {"name": "annex"}),
            (1, 4, {"name": "hall"}),
            (2, 2, {"name": "kitchen"}),
            (2, 3, {"name": None}),
            (3, 2, {}),
        )
    ]
    made = parts(spark, told)

    rows = brokers(made["agents"], made["agents_seen"], made["names"]).collect()

    assert {row.broker: row.name for row in rows} == {1: "hall", 2: None, 3: None}


def test_a_bad_line_is_told_by_its_first_fault():
    good = record("deliveries", 2, batch=1, row=0, **delivery(1, [10, 20]))
    faults = {
        "wrong type: qos": {"qos": True},
        "wrong type: broker": {"broker": 1.0},
        "wrong type: delay": {"delay": [[1, "2"]]},
        "out of range: delay": {"delay": [[0, 1]]},
        "out of range: strategy": {"strategy": "hope"},
        "out of range: broker": {"broker": 2**32},
        "missing: frames": {"frames": None},
    }

    found = {why: reason(text([good | fault])) for why, fault in faults.items()}

    assert found == {why: why for why in faults}
    assert reason('{"v":1}{"v":1}') == "not JSON"
    assert reason("5") == "not JSON"
    assert reason('{"v":1,"ta') == "truncated"


def test_of_each_origin_the_flows_that_carried_most_are_told_and_no_other_takes_their_place(spark):
    about = {"error": 0, "publications_per_min": 1, "destinations": 0}
    honest = [
        record("flows", 1, batch=n, row=0, flow="a/# b", rate=rate, planned=planned, **about)
        for n, (rate, planned) in enumerate([(8_000, 0), (16_000, 1), (16_000, 1)], 1)
    ]
    lies = [
        record("flows", 2, batch=1, row=n, flow=f"{n}", rate=COUNT_MAX - n, planned=1, **about)
        | {"window_ms": COUNT_MAX if n % 2 else 0}
        for n in range(2 * FLOWS_MAX + 2)
    ]

    found = [tuple(row) for row in flows(parts(spark, honest + lies)["flows"]).collect()]

    assert [row for row in found if row[0] == 1] == [(1, "a/# b", 40_000 / 3, 16_000, 5_000, 2 / 3)]
    assert len(found) == 1 + FLOWS_MAX
    assert all(row[1].isdigit() and int(row[1]) % 2 and row[4] <= COUNT_MAX for row in found[1:])
