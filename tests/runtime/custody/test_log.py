import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federator.errors import ConfigError
from federator.protocol.custody.ports import Record
from federator.runtime.custody.log import CustodyLog
from federator.runtime.custody.segment import decode, encode
from federator.runtime.storage.durable import LEAP
from tests.runtime.custody.custody_world import T0_US, StupidLog, add, key, make, open_log

OTHER_BOOT = bytes(16)[:-1] + b"\1"


def files(folder):
    return sorted((folder / "custody").glob("*.log"))


@st.composite
def records(draw):
    keys = sorted(draw(st.sets(st.binary(min_size=8, max_size=8), min_size=1, max_size=9)))
    number = st.integers(0, 2**64 - 1)
    return Record(
        draw(number),
        draw(number),
        draw(st.integers(0, 2**32 - 1)),
        b"".join(keys),
        tuple(draw(number) for _ in keys),
        draw(st.binary(max_size=100)),
    )


@given(records())
def test_a_record_is_stored_and_found_again(record):
    assert decode(encode(record)) == record


@given(records(), st.data())
def test_a_record_with_one_bit_changed_is_none(record, data):
    stored = bytearray(encode(record))
    bit = data.draw(st.integers(0, 8 * len(stored) - 1))

    stored[bit // 8] ^= 1 << bit % 8

    assert decode(bytes(stored)) is None


ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.sets(st.integers(1, 5), min_size=1), max_size=4)),
        st.tuples(st.just("wait"), st.integers(-2_000_000, 5_000_000)),
        st.tuples(st.just("expire"), st.none()),
        st.tuples(st.just("restart"), st.none()),
    ),
    max_size=40,
)


@settings(max_examples=150)
@given(acts=ACTS, bytes_max=st.sampled_from([4_000, 100_000]), age_max_s=st.sampled_from([9, 1e6]))
def test_the_log_does_what_one_list_of_everything_does(
    tmp_path_factory, acts, bytes_max, age_max_s
):
    folder = tmp_path_factory.mktemp("log")
    now_us = T0_US
    how = {"bytes_max": bytes_max, "age_max_s": age_max_s, "wall_clock_us": lambda: now_us}
    log, model = open_log(folder, **how), StupidLog()
    epoch = log.epoch

    for act, what in acts:
        if act == "append":
            model.records += add(log, *what, time_us=now_us, body=bytes(150))
        elif act == "wait":
            now_us += what
        elif act == "expire":
            held = log.records
            assert log.expire() == held - log.records
        else:
            log.close()
            log = open_log(folder, **how)
        model.oldest = log.oldest_seq
        check_equal(log, model, now_us)
    assert log.epoch == epoch
    log.close()


def check_equal(log, model, now_us):
    held = model.held()
    assert log.next_seq == len(model.records) + 1
    assert log.records == len(held)
    assert [log.read(record.seq) for record in model.records[-20:]] == [
        record if record.seq >= model.oldest else None for record in model.records[-20:]
    ]
    assert list(log.recent(10)) == held[:-11:-1]
    for one in map(key, range(1, 6)):
        assert log.head(one) == model.head(one)
        for after in (0, 3, model.oldest, log.next_seq):
            assert log.floor(one, after) == model.floor(one, after)
            assert log.select(one, after, limit=3) == model.select(one, after, 3)
        at_or_before = model.first_since(one, (now_us - 1_000_000) // 1000 * 1000)
        if not model.records or model.oldest == 1:
            assert log.first_since(one, now_us - 1_000_000) == at_or_before


def test_what_is_too_much_is_dropped_from_the_front_and_counted(tmp_path):
    log = open_log(tmp_path, bytes_max=40_000)

    for _ in range(100):
        add(log, {1}, {1, 2}, body=bytes(300))
        assert log.bytes <= 40_000 + 1_000

    assert log.bytes == sum(path.stat().st_size for path in files(tmp_path))
    assert log.bytes > 40_000 * 3 // 4
    assert log.dropped_for_room == 200 - log.records == log.oldest_seq - 1
    log.close()


def test_what_is_too_old_is_dropped_though_nothing_comes_after(tmp_path):
    now_us = T0_US
    log = open_log(tmp_path, age_max_s=60, wall_clock_us=lambda: now_us)
    add(log, {1}, {2})

    now_us += 59_000_000
    assert log.expire() == 0
    now_us += 2_000_000
    assert log.expire() == 2

    assert (log.records, log.dropped_by_age, log.oldest_seq, log.next_seq) == (0, 2, 3, 3)
    assert len(files(tmp_path)) == 1
    log.close()


def test_more_records_or_filters_than_the_table_holds_are_dropped(tmp_path):
    log = open_log(tmp_path, bytes_max=8_000_000, segment_bytes=1_000, records_max=100)

    for _ in range(200):
        add(log, {1}, {2})
    assert log.records <= 100 + 20
    for _ in range(50):
        add(log, set(range(1, 41)))
        assert log.records * 40 <= 200 + 250 + 100 * 40
    log.expire()

    assert log.records <= 5 + 2
    log.close()


def test_the_end_of_a_chain_is_known_after_all_of_it_was_dropped_and_restarts(tmp_path):
    log = open_log(tmp_path, bytes_max=10_000)
    add(log, {7}, {7})
    for _ in range(100):
        add(log, {1}, body=bytes(300))
    assert log.oldest_seq > 3

    for _ in range(2):
        log.close()
        log = open_log(tmp_path, bytes_max=10_000)

        assert log.head(key(7)) == 2
        assert log.floor(key(7), 0) == 2
        assert log.select(key(7), 0, limit=9) == []
    [record] = add(log, {7})
    assert record.prevs == (2,)
    log.close()


def test_another_boot_of_the_machine_keeps_the_log_and_leaps_ahead(tmp_path):
    log = open_log(tmp_path)
    before = add(log, {1}, {2}, {1})
    epoch = log.epoch
    log.close()

    log = open_log(tmp_path, boot=OTHER_BOOT)
    [after] = add(log, {1})

    assert log.epoch == epoch
    assert after.seq == 3 + 1 + LEAP
    assert after.prevs == (3,)
    assert list(log.recent(9)) == [after, *reversed(before)]
    assert log.select(key(1), 0, limit=9) == [1, 3, after.seq]
    log.close()
    log = open_log(tmp_path, boot=OTHER_BOOT)
    assert log.next_seq == after.seq + 1
    log.close()


def test_a_tail_torn_at_any_byte_costs_its_record_and_no_number_is_used_twice(tmp_path):
    log = open_log(tmp_path)
    before = add(log, {1}, {1, 2})
    [path] = files(tmp_path)
    sound = path.stat().st_size
    add(log, {1, 3})
    log.close()
    whole = path.read_bytes()

    for size in range(sound, len(whole)):
        for old in files(tmp_path):
            old.unlink()
        path.write_bytes(whole[:size])
        log = open_log(tmp_path)

        assert list(log.recent(9)) == before[::-1]
        assert log.lost_bytes == size - sound
        assert log.head(key(3)) == 0
        assert log.next_seq == (3 if size == sound else 3 + LEAP)
        [record] = add(log, {1})
        assert record.prevs == (2,)
        log.close()
        log = open_log(tmp_path)
        assert list(log.recent(9)) == [record, *before[::-1]]
        assert log.lost_bytes == 0
        log.close()


@settings(max_examples=60)
@given(st.data())
def test_after_any_damage_what_is_before_is_kept_and_no_number_is_used_twice(
    tmp_path_factory, data
):
    folder = tmp_path_factory.mktemp("log")
    log = open_log(folder, segment_bytes=500)
    before = [record for _ in range(20) for record in add(log, {1}, {2, 3})]
    epoch = log.epoch
    log.close()
    paths = files(folder)
    path = data.draw(st.sampled_from(paths))
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    how = data.draw(st.sampled_from(["bit", "zeros", "cut", "gone"]))

    if how == "gone":
        path = data.draw(st.sampled_from(paths[1:-1]))
        path.unlink()
    else:
        content[at] ^= 1 << data.draw(st.integers(0, 7))
        content[at:] = {"bit": content[at:], "zeros": bytes(len(content) - at), "cut": b"\0"}[how]
        path.write_bytes(content)
    log = open_log(folder, segment_bytes=500)

    kept = list(log.recent(99))[::-1]
    assert kept == before[: len(kept)]
    if log.epoch == epoch:
        assert log.next_seq > LEAP
    else:
        assert log.epoch > epoch
        assert (path, kept, log.next_seq) == (paths[0], [], 1)
    add(log, {1}, {3})
    chains = {one: log.select(key(one), 0, limit=99) for one in (1, 2, 3)}
    log.close()
    log = open_log(folder, segment_bytes=500)
    assert {one: log.select(key(one), 0, limit=99) for one in (1, 2, 3)} == chains
    assert log.lost_bytes == 0
    log.close()


def test_a_new_epoch_is_greater_though_the_clock_was_set_back(tmp_path):
    log = open_log(tmp_path)
    epoch = log.epoch
    log.close()
    [path] = files(tmp_path)
    path.write_bytes(b"damaged")

    log = open_log(tmp_path, wall_clock_us=lambda: 5_000_000)

    assert log.epoch == epoch + 1
    assert log.next_seq == 1
    assert log.lost_bytes == 7
    log.close()


def test_an_unsound_record_is_not_given_out(tmp_path):
    log = open_log(tmp_path)
    add(log, {1}, {1}, body=b"here")
    [path] = files(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"here", b"HERE", 1))

    assert log.read(1) is None
    assert log.read(2) is not None
    assert log.unreadable == 1
    log.close()


def test_times_that_fall_hide_no_record(tmp_path):
    log = open_log(tmp_path)
    for second in (10, 20, 5, 6, 30):
        add(log, {1}, time_us=T0_US + second * 1_000_000)

    found = [log.first_since(key(1), T0_US + second * 1_000_000) for second in (0, 15, 20, 25, 31)]

    assert found == [1, 2, 2, 5, None]
    assert log.first_since(key(2), 0) is None
    log.close()


def test_a_folder_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigError, match=str(tmp_path / "file")) as raised:
        CustodyLog(tmp_path / "file", bytes_max=1 << 20, age_max_s=60)

    assert raised.value.exit_code == 73


def test_files_are_for_us_alone_and_few_are_open(tmp_path):
    log = open_log(tmp_path, segment_bytes=300)
    for _ in range(30):
        add(log, {1}, body=bytes(100))
    opened = len(os.listdir("/proc/self/fd"))

    assert all(log.read(seq) for seq in range(1, 31))

    assert len(os.listdir("/proc/self/fd")) <= opened + 4
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "custody").iterdir()}
    assert modes == {0o600}
    assert (tmp_path / "custody").stat().st_mode & 0o777 == 0o700
    log.close()


@pytest.mark.parametrize("policy", ["interval", "always"])
def test_a_log_that_is_synchronised_holds_the_same(tmp_path, policy):
    log = open_log(tmp_path, fsync=policy, segment_bytes=500)
    made = [record for _ in range(20) for record in add(log, {1})]
    log.expire()
    log.close()

    log = open_log(tmp_path)

    assert list(log.recent(99)) == made[::-1]
    log.close()


def test_records_out_of_turn_are_a_mistake_of_ours(tmp_path):
    log = open_log(tmp_path)
    [record] = make(log, [{1}])
    log.append([record])

    with pytest.raises(AssertionError):
        log.append([record])
    log.close()
