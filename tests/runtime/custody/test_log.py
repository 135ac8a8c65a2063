import itertools
import os
import struct
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federator.errors import ConfigError
from federator.protocol.custody.ports import Record
from federator.protocol.forwarding.frames import keys_in
from federator.runtime.custody.log import CustodyLog
from federator.runtime.custody.segment import HEADER_BYTES, decode, encode, file_name
from federator.runtime.storage import damage
from federator.runtime.storage.durable import LEAP
from federator.runtime.storage.inventory import Inventory
from tests.protocol.custody.archive import Archive
from tests.runtime.custody.custody_world import BOOT, T0_US, add, key, make, open_log, reopening

OTHER_BOOT = bytes(16)[:-1] + b"\1"

opened = reopening(open_log)


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
    log, model = open_log(folder, **how), Archive()
    epoch = log.epoch

    for act, what in acts:
        if act == "append":
            model.frames += add(log, *what, time_us=now_us, body=bytes(150))
        elif act == "wait":
            now_us += what
        elif act == "expire":
            held = log.records
            assert log.expire() == held - log.records
        else:
            log.close()
            log = open_log(folder, **how)
        model.gone = log.oldest_seq - 1
        check_equal(log, model, now_us)
    assert log.epoch == epoch
    log.close()


def check_equal(log, model, now_us):
    held = model.held()
    assert log.next_seq == len(model.frames) + 1
    assert log.records == len(held)
    for record in model.frames[-20:]:
        assert log.read(record.seq) == model.read(record.seq)
    assert list(log.recent(10)) == held[:-11:-1]
    for one in map(key, range(1, 6)):
        assert log.head(one) == model.head(one)
        for after in (0, 3, log.oldest_seq, log.next_seq):
            assert log.floor(one, after) == model.floor(one, after)
            assert log.select(one, after, limit=3) == model.select(one, after, limit=3)
        at_or_before = model.first_since(one, (now_us - 1_000_000) // 1000 * 1000)
        if not model.gone:
            assert log.first_since(one, now_us - 1_000_000) == at_or_before


def test_what_is_too_much_is_dropped_from_the_front_and_counted(tmp_path, opened):
    log = opened(bytes_max=40_000)

    for _ in range(100):
        add(log, {1}, {1, 2}, body=bytes(300))
        assert log.bytes <= 40_000 + 1_000

    assert log.bytes == sum(path.stat().st_size for path in files(tmp_path))
    assert log.bytes > 40_000 * 3 // 4
    assert log.dropped_for_room == 200 - log.records == log.oldest_seq - 1


def test_what_is_too_old_is_dropped_though_nothing_comes_after(tmp_path, opened):
    now_us = T0_US
    log = opened(age_max_s=60, wall_clock_us=lambda: now_us)
    add(log, {1}, {2})

    now_us += 59_000_000
    assert log.expire() == 0
    now_us += 2_000_000
    assert log.expire() == 2

    assert (log.records, log.dropped_by_age, log.oldest_seq, log.next_seq) == (0, 2, 3, 3)
    assert len(files(tmp_path)) == 1


def test_more_records_or_filters_than_the_table_holds_are_dropped(opened):
    log = opened(bytes_max=8_000_000, segment_bytes=1_000, records_max=100)

    for _ in range(200):
        add(log, {1}, {2})
    assert log.records <= 100 + 20
    for _ in range(50):
        add(log, set(range(1, 41)))
        assert log.records * 40 <= 200 + 250 + 100 * 40
    log.expire()

    assert log.records <= 5 + 2


def test_the_end_of_a_chain_is_known_after_all_of_it_was_dropped_and_restarts(opened):
    log = opened(bytes_max=10_000)
    add(log, {7}, {7})
    for _ in range(100):
        add(log, {1}, body=bytes(300))
    assert log.oldest_seq > 3

    for _ in range(2):
        log = opened(bytes_max=10_000)

        assert log.head(key(7)) == 2
        assert log.floor(key(7), 0) == 2
        assert log.select(key(7), 0, limit=9) == []
    [record] = add(log, {7})
    assert record.prevs == (2,)


def test_another_boot_of_the_machine_keeps_the_log_and_leaps_ahead(opened):
    log = opened()
    before = add(log, {1}, {2}, {1})
    epoch = log.epoch

    log = opened(boot=OTHER_BOOT)
    [after] = add(log, {1})

    assert log.epoch == epoch
    assert after.seq == 3 + 1 + LEAP
    assert after.prevs == (3,)
    assert list(log.recent(9)) == [after, *reversed(before)]
    assert log.select(key(1), 0, limit=9) == [1, 3, after.seq]
    log = opened(boot=OTHER_BOOT)
    assert log.next_seq == after.seq + 1


def chains_of(log):
    return {one: log.select(key(one), 0, limit=99) for one in range(1, 6)}


@settings(max_examples=200)
@given(data=st.data(), how=st.sampled_from(["bit", "zeros", "cut", "empty", "gone"]))
def test_damage_costs_what_is_damaged_and_no_number_is_used_twice(tmp_path_factory, data, how):
    folder = tmp_path_factory.mktemp("log")
    log = open_log(folder, segment_bytes=500)
    before = [record for _ in range(20) for record in add(log, {1}, {2, 3})]
    epoch = log.epoch
    places = {r.seq: (s.path, *s.place(r.seq)) for r in before for s in [log._segment_of(r.seq)]}
    log.close()
    Inventory(folder).note_all()
    path = data.draw(st.sampled_from(files(folder)))
    whole = path.read_bytes()
    content = bytearray(whole)
    at = data.draw(st.integers(0, len(content) - 1))

    if how == "zeros":
        end = data.draw(st.integers(at + 1, len(content)))
        content[at:end] = bytes(end - at)
    elif how == "bit":
        content[at] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del content[at if how == "cut" else 0 :]
    path.write_bytes(content)
    if how == "gone":
        path.unlink()
    half = HEADER_BYTES // 2
    has_header = whole[:half] in {bytes(content[:half]), bytes(content[half : 2 * half])}
    hit = {
        seq
        for seq, (of, start, size) in places.items()
        for record in [slice(start, start + size)]
        if of == path and not (has_header and content[record] == whole[record])
    }
    Inventory(folder).compare()
    log = open_log(folder, segment_bytes=500)

    kept = list(log.recent(99))[::-1]
    assert [record for record in before if record.seq not in hit] == kept
    assert log.epoch == epoch
    for one in (1, 2, 3):
        for seq in log.select(key(one), 0, limit=99):
            assert log.read(seq) is not None or log.is_lost(seq)
        followed = [r for r in before if key(one) in keys_in(r.keys)]
        assert {r.seq for r in followed if r.seq not in hit} <= set(chains_of(log)[one])
        for record, after in itertools.pairwise(followed):
            if record.seq in hit and after.seq not in hit and record.seq > log.oldest_seq:
                assert log.last(key(one), after.seq - 1) == record.seq, "it is told to be gone"
    if hit or content[:HEADER_BYTES] != whole[:HEADER_BYTES]:
        assert damage.found(folder)["custody"]
    again = add(log, {1}, {3})
    assert {r.seq for r in again}.isdisjoint({r.seq for r in before})
    chains = chains_of(log)
    log.close()
    log = open_log(folder, segment_bytes=500)
    assert chains_of(log) == chains
    assert list(log.recent(99))[::-1] == kept + again
    log.close()


def former_segment(records, epoch=7):
    """A file as agents before 5cf35157 left it."""
    fields = struct.pack("<8sQQQ16s", b"fedlog2\n", epoch, records[0].seq, 0, BOOT)
    header = fields + crc32(fields).to_bytes(4, "little")
    return header + b"".join(map(encode, records))


def test_a_segment_of_an_older_release_is_read_and_goes_on(tmp_path, opened):
    folder = tmp_path / "custody"
    folder.mkdir()
    records = [Record(seq, T0_US, 1, key(1), (seq - 1,), b"body%d" % seq) for seq in range(1, 6)]
    content = bytearray(former_segment(records))
    content[content.index(b"body3")] ^= 1
    (folder / file_name(7, 1)).write_bytes(content)

    log = opened()
    more = [record for _ in range(9) for record in add(log, {1}, body=bytes(100))]
    log = opened()

    kept = [*records[:2], *records[3:], *more]
    assert log.epoch == 7
    assert list(log.recent(99))[::-1] == kept
    assert more[0].seq == 6
    assert log.select(key(1), 0, limit=99) == list(range(1, 15))


def test_what_a_client_hides_in_a_body_is_no_record_when_its_own_is_damaged(tmp_path, opened):
    log = opened()
    add(log, {1})
    forged = encode(Record(3, T0_US, 1, key(9), (0,), b"not of any client's rights"))
    add(log, {1}, body=forged)
    [path] = files(tmp_path)
    add(log, {1})
    content = bytearray(path.read_bytes())
    at = content.index(forged) - 44  # the label: where it says how long it is
    content[at] ^= 1
    path.write_bytes(content)

    log = opened()

    assert [record.seq for record in log.recent(9)] == [3, 1]
    assert log.read(3).keys == key(1)
    assert log.select(key(9), 0, limit=9) == []


def test_a_new_epoch_is_greater_though_the_clock_was_set_back(tmp_path, opened):
    log = opened()
    epoch = log.epoch
    [path] = files(tmp_path)
    path.write_bytes(b"damaged")

    log = opened(wall_clock_us=lambda: 5_000_000)

    assert log.epoch == epoch + 1
    assert log.next_seq == 1
    assert damage.found(tmp_path) == {"custody": 1}


def test_an_unsound_record_is_not_given_out(tmp_path, opened):
    log = opened()
    add(log, {1}, {1}, body=b"here")
    [path] = files(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"here", b"HERE", 1))

    assert [log.read(1), log.read(1)] == [None, None]
    assert log.read(2) is not None
    assert [log.is_lost(1), log.is_lost(2)] == [True, False]
    assert damage.found(tmp_path) == {"custody": 1}, "said once"


def test_times_that_fall_hide_no_record(opened):
    log = opened()
    for second in (10, 20, 5, 6, 30):
        add(log, {1}, time_us=T0_US + second * 1_000_000)

    found = [log.first_since(key(1), T0_US + second * 1_000_000) for second in (0, 15, 20, 25, 31)]

    assert found == [1, 2, 2, 5, None]
    assert log.first_since(key(2), 0) is None


def test_a_folder_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigError, match=str(tmp_path / "file")) as raised:
        CustodyLog(tmp_path / "file", bytes_max=1 << 20, age_max_s=60)

    assert raised.value.exit_code == 73


def test_files_are_for_us_alone_and_few_are_open(tmp_path, opened):
    log = opened(segment_bytes=300)
    for _ in range(30):
        add(log, {1}, body=bytes(100))
    opened = len(os.listdir("/proc/self/fd"))

    assert all(log.read(seq) for seq in range(1, 31))

    assert len(os.listdir("/proc/self/fd")) <= opened + 4
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "custody").iterdir()}
    assert modes == {0o600}
    assert (tmp_path / "custody").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("policy", ["interval", "always"])
def test_a_log_that_is_synchronised_holds_the_same(policy, opened):
    log = opened(fsync=policy, segment_bytes=500)
    made = [record for _ in range(20) for record in add(log, {1})]
    log.expire()

    log = opened()

    assert list(log.recent(99)) == made[::-1]


def test_records_out_of_turn_are_a_mistake_of_ours(opened):
    log = opened()
    [record] = make(log, [{1}])
    log.append([record])

    with pytest.raises(AssertionError):
        log.append([record])
