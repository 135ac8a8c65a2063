"""A simulated log: whether it is what agents could have written, and the same every time."""

from collections import Counter, defaultdict
from pathlib import Path

import pytest
from federator_analytics.errors import UsageError

from federator.errors import DecodeError
from federator.protocol.telemetry.records import decode
from lab.event_log.writing import Order, write

BROKERS = 5
RECORDS = 20_000


def written(folder: Path, *, processes=1, **options):
    order = Order(**{"brokers": BROKERS, "records": RECORDS, "seed": 6} | options)
    return write(order, folder, processes=processes)


def lines_in(folder: Path):
    for path in sorted(folder.rglob("*.jsonl")):
        yield from path.read_bytes().splitlines()


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    folder = tmp_path_factory.mktemp("log")
    told = written(folder)
    records = {}
    for line in lines_in(folder):
        record = decode(line)
        records.setdefault((record.broker, record.spool, record.batch, record.row), record)
    return folder, told, list(records.values())


def rows_of(records, table):
    return [record for record in records if type(record).__name__.lower() == table]


def test_every_line_is_a_record_and_every_table_is_there(log):
    folder, told, records = log

    counts = Counter(type(record).__name__.lower() for record in records)

    assert counts == told.tables
    assert len(counts) == 12
    assert len(records) == told.records
    assert sum(1 for _ in lines_in(folder)) == told.records + told.copies
    assert told.copies > 0
    assert abs(told.records - RECORDS) < RECORDS / 10


def test_batches_of_a_spool_follow_each_other_without_a_gap(log):
    _, _, records = log

    rows = defaultdict(list)
    for record in records:
        rows[record.broker, record.spool, record.batch].append(record.row)

    assert all(sorted(of_batch) == list(range(len(of_batch))) for of_batch in rows.values())
    batches = defaultdict(set)
    for broker, spool, batch in rows:
        batches[broker, spool].add(batch)
    assert len(batches) == BROKERS + 1, "one broker lost its disk"
    for numbers in batches.values():
        assert numbers == set(range(1, len(numbers) + 1))


def test_a_histogram_holds_each_publication_of_its_row(log):
    _, _, records = log

    for row in rows_of(records, "deliveries"):
        assert sum(count for _, count in row.delay) == row.publications
        assert row.base_us == row.min_us
        assert row.min_us * row.publications <= row.sum_us <= row.max_us * row.publications


def test_nothing_arrives_that_was_not_offered(log):
    _, _, records = log
    offered, arrived = Counter(), Counter()
    for row in rows_of(records, "offered"):
        offered[row.broker, row.filter, row.qos] += row.publications
    for row in rows_of(records, "arrived"):
        arrived[row.origin, row.broker, row.filter, row.qos] += row.publications

    missing = Counter()
    for (origin, _, filter_, qos), count in arrived.items():
        assert 0 < count <= offered[origin, filter_, qos]
        missing[qos] += offered[origin, filter_, qos] - count

    assert missing[0] > 0, "QoS 0 loses something when brokers die"


def test_deaths_returns_and_both_routings_are_in_the_log(log):
    _, _, records = log

    kinds = Counter(record.kind for record in rows_of(records, "events"))

    assert {"agent_started", "link_up", "link_down", "core_changed", "takeover"} <= kinds.keys()
    assert kinds["agent_started"] == 2 * BROKERS + 2
    assert {row.strategy for row in rows_of(records, "deliveries")} == {"mesh", "shortest-path"}
    assert any(row.up == 0 for row in rows_of(records, "links"))
    assert any(row.duplicates for row in rows_of(records, "links"))


def test_the_same_seed_gives_the_same_files_whatever_the_number_of_processes(log, tmp_path):
    folder, _, _ = log

    written(tmp_path / "again", processes=2)
    written(tmp_path / "other", seed=8)

    def files(of):
        return {path.relative_to(of): path.read_bytes() for path in of.rglob("*.jsonl")}

    assert files(tmp_path / "again") == files(folder)
    assert files(tmp_path / "other") != files(folder)


def test_damage_is_added_and_takes_nothing_away(log, tmp_path):
    folder, _, _ = log

    told = written(tmp_path, corrupt=0.05)

    sound = Counter(lines_in(folder))
    damaged = Counter(lines_in(tmp_path)) - sound
    assert not sound - Counter(lines_in(tmp_path))
    assert sum(damaged.values()) == sum(told.damaged.values()) > RECORDS / 40
    assert len(told.damaged) == 6
    for line in damaged:
        with pytest.raises(DecodeError):
            decode(line)


def test_fewer_records_than_the_story_has_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match=r"--records 100: the story of 5 brokers has \d+ at least"):
        written(tmp_path, records=100)
