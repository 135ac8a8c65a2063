"""Damage to the log where it hits the last of something: a header, a page, a chain, a file."""

import pytest

from federator.runtime.custody.segment import HEADER_BYTES, LABEL_BYTES
from federator.runtime.storage import damage
from federator.runtime.storage.durable import LEAP
from tests.runtime.custody.custody_world import add, key, open_log, reopening

opened = reopening(open_log)


def left_by(folder, *filters_of_each, **how):
    """The files of a log with such records, in order."""
    log = open_log(folder, **how)
    for filters in filters_of_each:
        add(log, filters)
    log.close()
    return sorted((folder / "custody").glob("*.log"))


def flip(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("size", [HEADER_BYTES // 2, HEADER_BYTES - 1])
def test_no_number_is_used_twice_when_a_cut_leaves_one_header(tmp_path, size, opened):
    [path] = left_by(tmp_path, {1}, {1})
    path.write_bytes(path.read_bytes()[:size])

    log = opened()

    assert log.next_seq == 1 + LEAP


def test_records_of_a_page_cut_to_its_header_are_missed(tmp_path, opened):
    _, path, _ = left_by(tmp_path, *[{1}] * 20, segment_bytes=440)
    path.write_bytes(path.read_bytes()[:HEADER_BYTES])

    opened().close()

    assert damage.found(tmp_path) == {"custody": 1}


@pytest.mark.parametrize("from_end", [1, 9, 16], ids=["checksum", "body", "number before"])
def test_the_last_record_stays_on_its_chain_when_it_is_damaged(tmp_path, from_end, opened):
    [path] = left_by(tmp_path, {1}, {2}, {1})
    flip(path, path.stat().st_size - from_end)

    log = opened()

    assert log.head(key(1)) == 3
    assert log.is_lost(3)
    assert log.next_seq == 4
    [after] = add(log, {1})
    assert after.prevs == (3,)


def test_a_number_before_that_is_damaged_takes_no_record_off_its_chain(tmp_path, opened):
    [path] = left_by(tmp_path, {1}, {1}, {2})
    record_bytes = (path.stat().st_size - HEADER_BYTES) // 3
    flip(path, HEADER_BYTES + record_bytes + LABEL_BYTES + len(key(1)))

    log = opened()

    assert log.head(key(1)) == 2
    assert log.is_lost(2)
