"""The spool: numbered once and for all, whole, bounded, and unmoved by a full disk or a crash."""

import contextlib
import json
import os
import re
import resource

import msgspec
import pytest

from federator.protocol.telemetry.records import Events, decode
from federator.runtime.storage import damage
from federator.runtime.telemetry.spool import BATCH_BYTES_MAX, Spool
from federator.runtime.telemetry.spool_files import CLAIM, Claim

SHARED = {"federation": "f", "epoch": 1}
LIMITS = {"bytes_max": 10**9, "segment_bytes_max": 10**8, "segment_age_ms": 1_000}


def rows(*details):
    return [(Events, {"at_us": 1, "kind": "link_up", "detail": detail}) for detail in details]


def spool_in(folder, **limits):
    return Spool(folder=folder, broker=3, **LIMITS | limits)


def records_in(folder):
    files = sorted(folder.glob("3-*.jsonl"), key=lambda p: int(p.name.split("-")[2]))
    return [decode(line) for file in files for line in file.read_bytes().splitlines()]


def numbers(records):
    return [(record.batch, record.row) for record in records]


def test_batches_are_numbered_across_restarts_and_segments_say_what_they_hold(tmp_path):
    spool = spool_in(tmp_path)
    spool.write(rows("a", "b"), SHARED, now_ms=0)
    spool.write(rows("c"), SHARED, now_ms=500)
    spool.tend(now_ms=900)
    assert not list(tmp_path.glob("*.jsonl"))
    spool.tend(now_ms=1_000)
    spool.write(rows("d"), SHARED, now_ms=1_500)
    spool.close()
    again = spool_in(tmp_path)
    again.write(rows("e"), SHARED, now_ms=0)
    again.close()

    names = sorted(file.name for file in tmp_path.glob("*.jsonl"))
    assert names == [f"3-{spool.id}-{span}.jsonl" for span in ("1-2", "3-3", "4-4")]
    assert again.id == spool.id
    assert numbers(records_in(tmp_path)) == [(1, 0), (1, 1), (2, 0), (3, 0), (4, 0)]
    assert again.held(again.id) == (1, 4)


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_what_a_crash_tore_off_is_cut_and_no_number_is_given_again(tmp_path, cut):
    spool = spool_in(tmp_path)
    spool.write(rows("a"), SHARED, now_ms=0)
    spool.write(rows("b", "c"), SHARED, now_ms=0)
    (unfinished,) = tmp_path.glob(".*.open")
    os.truncate(unfinished, unfinished.stat().st_size - cut)

    again = spool_in(tmp_path)
    again.write(rows("d"), SHARED, now_ms=0)
    again.close()

    assert again.torn == 1
    *before, (last, _) = numbers(records_in(tmp_path))
    assert before == [(1, 0), (2, 0)]
    assert last > CLAIM
    assert damage.found(tmp_path).total() == 1


def test_zeros_that_a_power_cut_left_are_cut_too(tmp_path):
    spool = spool_in(tmp_path)
    spool.write(rows("a"), SHARED, now_ms=0)
    (unfinished,) = tmp_path.glob(".*.open")
    with unfinished.open("ab") as file:
        file.write(b"\0" * 4_096 + b"\n")

    again = spool_in(tmp_path)

    assert again.torn == 1
    assert numbers(records_in(tmp_path)) == [(1, 0)]


def test_another_boot_goes_on_behind_the_numbers_that_may_have_been_given_out(tmp_path):
    spool = spool_in(tmp_path)
    spool.write(rows("a"), SHARED, now_ms=0)
    spool.write(rows("lost with the power"), SHARED, now_ms=0)
    (unfinished,) = tmp_path.glob(".*.open")
    os.truncate(unfinished, unfinished.read_bytes().index(b"\n") + 1)
    claim = msgspec.json.decode(damage.unsealed((tmp_path / "spool").read_bytes()), type=Claim)
    moved = msgspec.structs.replace(claim, boot="f" * 32)
    (tmp_path / "spool").write_bytes(msgspec.json.encode(moved))

    again = spool_in(tmp_path)
    again.write(rows("b"), SHARED, now_ms=0)
    again.close()

    assert again.id == spool.id
    first, second = (batch for batch, _ in numbers(records_in(tmp_path)))
    assert first == 1
    assert second == claim.through + 1 > CLAIM
    part = again.read(again.id, 2, 10**9, bytes_max=10**6)
    assert part.last == second


def test_a_lost_folder_is_a_new_spool_and_a_damaged_claim_too(tmp_path):
    spool = spool_in(tmp_path)
    spool.write(rows("a"), SHARED, now_ms=0)
    spool.close()
    (tmp_path / "spool").write_text("{")

    again = spool_in(tmp_path)
    again.write(rows("b"), SHARED, now_ms=0)

    assert again.id != spool.id
    assert again.held(again.id) == (1, 1)
    assert again.read(spool.id, 1, 9, bytes_max=10**6).last == 1


def test_the_oldest_segments_go_when_there_is_no_room_and_are_counted(tmp_path):
    spool = spool_in(tmp_path, bytes_max=3_000, segment_bytes_max=1, segment_age_ms=10**9)
    dropped = 0
    for number in range(40):
        spool.write(rows(f"number {number}"), SHARED, now_ms=0)
        dropped += spool.tend(now_ms=0)

    size = sum(file.stat().st_size for file in tmp_path.glob("*.jsonl"))
    held = [batch for batch, _ in numbers(records_in(tmp_path))]
    assert size <= 3_000
    assert held == list(range(dropped + 1, 41))
    assert spool.held(spool.id) == (dropped + 1, 40)
    assert dropped == spool.dropped > 0


def test_segments_that_somebody_took_away_are_passed_over(tmp_path):
    spool = spool_in(tmp_path, segment_bytes_max=1, segment_age_ms=10**9)
    for number in range(4):
        spool.write(rows(f"{number}"), SHARED, now_ms=0)
        spool.tend(now_ms=0)
    (tmp_path / f"3-{spool.id}-2-2.jsonl").unlink()
    (tmp_path / f"3-{spool.id}-4-4.jsonl").unlink()

    assert spool.read(spool.id, 2, 9, bytes_max=10**6).last == 3
    assert spool.read(spool.id, 4, 9, bytes_max=10**6) is None
    spool.write(rows("next"), SHARED, now_ms=0)
    spool.close()
    assert numbers(records_in(tmp_path))[-1] == (5, 0)
    again = spool_in(tmp_path)
    again.write(rows("last"), SHARED, now_ms=0)
    again.close()
    assert numbers(records_in(tmp_path))[-1] == (6, 0)


@contextlib.contextmanager
def files_of_at_most(size):
    """The kernel writes up to ``size`` bytes of a file, and then says that there is no room."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_costs_the_records_and_no_numbers(tmp_path):
    spool = spool_in(tmp_path)
    spool.write(rows("a"), SHARED, now_ms=0)
    (unfinished,) = tmp_path.glob(".*.open")
    with files_of_at_most(unfinished.stat().st_size + 100):
        for _ in range(3):
            with pytest.raises(OSError, match="too large"):
                spool.write(rows("b"), SHARED, now_ms=0)
    spool.write(rows("c"), SHARED, now_ms=0)
    spool.close()

    records = records_in(tmp_path)
    assert numbers(records) == [(1, 0), (2, 0)]
    assert [record.detail for record in records] == ["a", "c"]


def test_parts_are_whole_batches_and_together_what_is_on_disk(tmp_path):
    spool = spool_in(tmp_path, segment_bytes_max=20_000, segment_age_ms=10**9)
    for number in range(100):
        spool.write(rows(*(f"{number}-{i}" for i in range(number % 7 + 1))), SHARED, now_ms=0)
        spool.tend(now_ms=0)

    parts, at = [], 1
    while (part := spool.read(spool.id, at, 10**9, bytes_max=3_000)) is not None:
        assert part.first == at
        batches = [json.loads(line)["batch"] for line in part.lines.splitlines()]
        assert batches[-1] == part.last
        assert len(part.lines) <= 3_000 or len(set(batches)) == 1
        parts.append(part.lines)
        at = part.last + 1
    spool.close()

    assert at == 101
    assert [decode(line) for line in b"".join(parts).splitlines()] == records_in(tmp_path)
    assert len(list(tmp_path.glob("*.jsonl"))) > 2
    middle = spool.read(spool.id, 50, 50, bytes_max=10**6)
    assert {json.loads(line)["batch"] for line in middle.lines.splitlines()} == {50}


def test_a_flush_of_very_much_becomes_batches_that_fit_in_a_message(tmp_path):
    spool = spool_in(tmp_path)

    written = spool.write(rows(*("x" * 1_000 for _ in range(500))), SHARED, now_ms=0)
    spool.write(rows("y" * BATCH_BYTES_MAX), SHARED, now_ms=0)
    spool.close()

    sizes = [sum(map(len, lines)) for batch in written for lines in batch.values()]
    assert len(sizes) == 4
    assert max(sizes) <= BATCH_BYTES_MAX
    assert spool.oversized == 1
    assert len(records_in(tmp_path)) == 500
    assert {record.batch for record in records_in(tmp_path)} == {1, 2, 3, 4}
    assert {record.row for record in records_in(tmp_path) if record.batch == 4} >= {0, 1}


def test_a_damaged_record_costs_no_other(tmp_path):
    spool = spool_in(tmp_path)
    for name in "abc":
        spool.write(rows(name), SHARED, now_ms=0)
    (unfinished,) = tmp_path.glob(".*.open")
    lines = unfinished.read_bytes().splitlines(keepends=True)
    lines[1] = b"\xff" + lines[1][1:]
    unfinished.write_bytes(b"".join(lines))

    again = spool_in(tmp_path)

    assert again.held(spool.id) == (1, 3)
    part = again.read(spool.id, 3, 3, bytes_max=1_000_000)
    assert decode(part.lines) == decode(lines[2])
    assert damage.found(tmp_path).total() == 1


def test_segments_of_an_older_release_have_no_checksums(tmp_path):
    spool = spool_in(tmp_path)
    spool.write(rows("a", "b"), SHARED, now_ms=0)
    spool.close()
    (path,) = tmp_path.glob("*.jsonl")
    content = re.sub(rb',"crc":"[0-9a-f]{8}"', b"", path.read_bytes())
    path.write_bytes(content)

    assert spool_in(tmp_path).read(spool.id, 1, 1, bytes_max=10**6).lines == content
    assert not damage.found(tmp_path)


def test_a_number_on_disk_that_is_damaged_hides_no_batch(tmp_path):
    spool = spool_in(tmp_path)
    for name in "abc":
        spool.write(rows(name), SHARED, now_ms=0)
    spool.close()
    (path,) = tmp_path.glob("*.jsonl")
    path.write_bytes(path.read_bytes().replace(b'"batch":2', b'"batch":6'))

    parts = [spool.read(spool.id, 1, 3, bytes_max=10**6) for _ in range(2)]

    assert [decode(line).batch for line in parts[0].lines.splitlines()] == [1, 3]
    assert parts[0] == parts[1]
    assert damage.found(tmp_path).total() == 1, "said once"
