import os
import struct
from zlib import crc32

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federator.errors import ConfigError
from federator.protocol.custody.ports import UNDO_MAX
from federator.runtime.custody.delivery_journal import FILE_NAME, FOLD_BYTES, DeliveryJournal
from federator.runtime.storage import damage
from federator.runtime.storage.durable import LEAP
from federator.runtime.storage.inventory import Inventory
from tests.runtime.custody.custody_world import BOOT, key, reopening

OTHER_BOOT = bytes(16)


def open_journal(folder, **changes):
    return DeliveryJournal(folder, **({"boot": BOOT} | changes))


opened = reopening(open_journal)


def folded(deliveries, start=None):
    positions = dict(start or {})
    for origin, epoch, seq, keys in deliveries:
        for at in range(0, len(keys), 8):
            chain = origin, keys[at : at + 8]
            known_epoch, last, *steps = positions.get(chain, (0, 0))
            if epoch > known_epoch:
                positions[chain] = (epoch, seq)
            elif epoch == known_epoch and seq > last:
                positions[chain] = (epoch, seq, *[*steps, last][-UNDO_MAX:])
    return positions


DELIVERIES = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(1, 2),
        st.integers(1, 2**64 - 1),
        st.sets(st.integers(1, 4), max_size=3).map(lambda s: b"".join(map(key, sorted(s)))),
    ),
    max_size=4,
)
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), DELIVERIES),
        st.tuples(st.just("mark"), st.floats(0, 1)),
        st.tuples(
            st.just("snapshot"), st.dictionaries(st.binary(min_size=8, max_size=8), st.just(5))
        ),
        st.tuples(st.just("reopen"), st.none()),
        st.tuples(st.just("resume"), st.floats(0, 1)),
    ),
    max_size=30,
)


@settings(max_examples=200)
@given(ACTS)
def test_the_journal_knows_what_a_list_of_all_deliveries_knows(tmp_path_factory, acts):
    folder = tmp_path_factory.mktemp("journal")
    journal = open_journal(folder)
    start, done, before, marked, since = {}, [], 0, 0, {}

    for act, what in acts:
        if act == "append":
            done += what
            assert journal.append(what) == before + len(done)
        elif act == "mark":
            marked = max(marked, before + round(what * len(done)))
        elif act == "snapshot":
            since = what
            journal.snapshot(folded(done, start), since, folded_to=marked)
        elif act == "reopen":
            journal.close()
            journal = open_journal(folder)
        else:
            marked = max(marked, before + round(what * len(done)))
            start = folded(done[: max(0, marked - before)], start)
            assert journal.resume(marked) == start
            before, done = before + len(done), []
        assert journal.positions(None) == folded(done, start)
        for marker in range(max(marked, before), before + len(done) + 1):
            assert journal.positions(marker) == folded(done[: marker - before], start)
        assert journal.load().since_us == since
    assert not damage.found(folder)
    journal.close()


def test_entries_without_a_marker_can_be_ignored_after_a_snapshot(opened):
    journal = opened()
    marked = journal.append([(1, 1, 10, key(1) + key(2)), (1, 1, 20, key(2))])
    journal.append([(1, 1, 30, key(2)), (2, 1, 7, key(3))])

    journal.snapshot(
        {(1, key(1)): (1, 15), (1, key(2)): (1, 30), (2, key(3)): (1, 7)}, {}, folded_to=marked
    )

    assert journal.positions(marked) == {(1, key(1)): (1, 15), (1, key(2)): (1, 20, 10)}
    assert journal.positions(None)[1, key(2)] == (1, 30, 10, 20)
    assert [entry.number for entry in journal.load().entries()] == [3, 4]


def test_a_chain_that_is_not_wanted_any_more_is_forgotten(opened):
    journal = opened()
    last = journal.append([(1, 1, 10, key(1)), (1, 1, 20, key(2))])

    journal.snapshot({(1, key(2)): (1, 20)}, {key(2): 99}, folded_to=last)

    assert journal.positions(None) == {(1, key(2)): (1, 20)}


def test_struck_out_entries_are_not_vouched_for_by_a_later_marker(opened):
    journal = opened()
    journal.append([(1, 1, seq, key(1)) for seq in (10, 20, 30)])

    journal = opened()
    assert journal.resume(1) == {(1, key(1)): (1, 10)}
    number = journal.append([(1, 1, 20, key(1))])

    assert number == 4
    assert journal.positions(4) == {(1, key(1)): (1, 20, 10)}
    assert journal.positions(1) == journal.positions(3) == {(1, key(1)): (1, 10)}


def test_no_marker_speaks_for_less_than_our_broker_is_known_to_have(opened):
    journal = opened()
    journal.append([(1, 1, seq, key(1)) for seq in (10, 20, 30)])
    assert journal.positions(None) == {(1, key(1)): (1, 30, 10, 20)}
    journal.note_marked(2)
    journal.append([(1, 1, 40, key(1))])

    journal = opened()

    assert journal.last == 4
    for marker in (None, 1, 2):
        assert journal.positions(marker) == {(1, key(1)): (1, 20, 10)}
    assert journal.positions(3) == {(1, key(1)): (1, 30, 10, 20)}
    journal.snapshot(None, None, folded_to=4)
    assert journal.positions(1) == {(1, key(1)): (1, 40, 10, 20, 30)}


def test_without_snapshots_or_markers_the_file_stays_bounded(tmp_path, opened):
    journal = opened(bytes_max=4_000)

    for seq in range(1, 2_000):
        journal.append([(1, 1, seq, key(seq % 5))])
        assert (tmp_path / FILE_NAME).stat().st_size < 2 * 4_000 + 1_000

    assert journal.last == 1_999
    assert journal.positions(None) == {
        (1, key(i)): (1, 1_995 + i, *range(1_955 + i, 1_995 + i, 5)) for i in range(5)
    }
    assert len(list(journal.load().entries())) >= 30


def test_entries_that_a_marker_is_known_for_are_due_before_they_are_very_many(opened):
    journal = opened()
    deliveries = [(1, 1, seq, key(1)) for seq in range(1, FOLD_BYTES // 32 + 2)]
    journal.append(deliveries)
    assert not journal.is_due

    journal.note_marked(journal.last)
    assert journal.is_due
    journal.snapshot(folded(deliveries), None, folded_to=journal.last)

    assert not journal.is_due
    assert journal.positions(None) == folded(deliveries)


def test_a_journal_is_due_for_a_snapshot_when_its_entries_fill_it(opened):
    journal = opened(bytes_max=1_000)
    assert not journal.is_due

    while not journal.is_due:
        assert journal.append([(1, 1, 1, key(1))]) < 100
    journal.snapshot(journal.positions(None), {}, folded_to=0)

    assert not journal.is_due


def test_a_marker_is_read_by_its_own_journal_only(tmp_path):
    journal, other = open_journal(tmp_path / "a"), open_journal(tmp_path / "b")
    journal.append([(1, 1, 1, key(1))] * 2)
    former = journal.marker()
    journal.append([(1, 1, 1, key(1))])
    last = journal.marker()

    assert journal.read_marker(last) == 3
    assert journal.read_marker(former) == 2
    assert other.read_marker(journal.marker()) is None
    for strange in (b"", b"|", b"|3", journal.marker()[:-1], b"x" * 99, journal.marker() + b"x"):
        assert journal.read_marker(strange) is None
    assert journal.read_marker(journal.marker() + b"0" * 99) is None
    bare = journal.marker().rpartition(b"|")[0]
    assert journal.read_marker(bare) is None
    assert journal.read_marker(bare + b"0|" + journal.marker().rpartition(b"|")[2]) is None
    journal.close()
    journal = open_journal(tmp_path / "a")
    assert journal.read_marker(last) == 3
    journal.close()
    other.close()


def test_another_boot_of_the_machine_leaps_ahead_once(opened):
    journal = opened()
    journal.append([(1, 1, 1, key(1))])

    journal = opened(boot=OTHER_BOOT)
    assert journal.append([(1, 1, 2, key(1))]) == 2 + LEAP

    journal = opened(boot=OTHER_BOOT)
    assert journal.last == 2 + LEAP
    assert journal.positions(1) == {(1, key(1)): (1, 1)}


HEADER_BYTES = 88  # one of two


def test_a_snapshot_that_ends_early_is_told_also_where_a_piece_ends(tmp_path, opened):
    journal = opened()
    path = tmp_path / FILE_NAME
    ends = set()
    for chains in range(6):
        positions = {(1, key(n)): (1, n) for n in range(chains)}
        journal.snapshot(positions, {}, folded_to=0)
        ends.add(path.stat().st_size)
    whole = path.read_bytes()

    for end in sorted(ends - {len(whole)}):
        path.write_bytes(whole[:end])
        told = damage.found(tmp_path).total()
        opened().close()
        assert damage.found(tmp_path).total() > told


@settings(max_examples=200)
@given(st.data(), st.sampled_from(["bit", "zeros", "cut"]))
def test_damage_costs_what_is_damaged_and_no_number_is_used_twice(tmp_path_factory, data, how):
    folder = tmp_path_factory.mktemp("journal")
    journal = open_journal(folder)
    path = folder / FILE_NAME
    before = {(1, key(n)): (1, n, *range(n - 2, n)) for n in range(10, 20)}
    journal.snapshot(before, {key(n): n for n in range(5)}, folded_to=0)
    batches = []
    for n in range(30, 50):
        start = path.stat().st_size
        journal.append([(2, 1, n, key(n)), (2, 1, n, key(n + 100))])
        batches.append((start, path.stat().st_size, n))
    last, marker, journal_id = journal.last, journal.marker(), journal.journal_id
    journal.close()
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    content = bytearray(whole)
    if how == "bit":
        content[at] ^= 1 << data.draw(st.integers(0, 7))
    elif how == "zeros":
        end = data.draw(st.integers(at + 1, len(content)))
        content[at:end] = bytes(end - at)
    else:
        del content[at:]
    inventory = Inventory(folder)
    inventory.note_all()
    path.write_bytes(content)
    if how == "cut" and at in (start for start, _, _ in batches):
        inventory.compare()  # what is left ends where a batch does

    journal = open_journal(folder)

    headers = [bytes(content[i * HEADER_BYTES : (i + 1) * HEADER_BYTES]) for i in (0, 1)]
    if whole[:HEADER_BYTES] in headers:
        assert journal.journal_id == journal_id
        assert journal.read_marker(marker) == last
        state = journal.load()
        sound = [n for start, end, n in batches if content[start:end] == whole[start:end]]
        assert [entry.seq for entry in state.entries()] == [n for n in sound for _ in (1, 2)]
        if how == "bit":
            assert len(state.positions) + len(state.since_us) + len(sound) >= 15 + 20 - 1
        assert state.positions.items() <= before.items()
    else:
        assert journal.read_marker(marker) is None
        assert journal.positions(None) == {}
    assert bool(damage.found(folder)[FILE_NAME]) == (content != whole)
    assert journal.append([(1, 1, 1, key(1))]) != last + 1 or content == whole
    journal.close()


def test_when_the_only_note_of_a_marker_is_damaged_nothing_counts_as_delivered(tmp_path, opened):
    journal = opened()
    path = tmp_path / FILE_NAME
    journal.append([(1, 1, 7, key(1))])
    before = path.stat().st_size
    journal.note_marked(1)
    journal.append([(1, 1, 8, key(1))])
    content = bytearray(path.read_bytes())
    content[before + 20] ^= 1
    path.write_bytes(content)

    journal = opened()

    assert journal.positions(None) == {}


def test_a_journal_of_an_older_release_is_read_and_written_anew(tmp_path, opened):
    journal = opened()
    journal.append([(1, 1, 7, key(1))])
    path = tmp_path / FILE_NAME
    batch = path.read_bytes()[2 * HEADER_BYTES :]
    marker = journal.marker()
    secret = path.read_bytes()[HEADER_BYTES - 36 : HEADER_BYTES - 4]
    rows, since, steps = [(1, key(1), 1, 5), (2, key(2), 1, 9)], [(key(1), 3)], [(2, 4), ()]
    snapshot = msgspec.msgpack.encode([rows, since, secret, steps])
    fields = (b"feddelv1", journal.journal_id, BOOT, 0, 1, len(snapshot))
    checksum = crc32(snapshot, crc32(struct.pack("<8sQ16sQQII", *fields, 0)))
    path.write_bytes(struct.pack("<8sQ16sQQII", *fields, checksum) + snapshot + batch)

    for _ in range(2):
        journal = opened()

        assert journal.read_marker(marker) == 1
        assert journal.positions(None) == {(1, key(1)): (1, 7, 2, 4, 5), (2, key(2)): (1, 9)}
        assert journal.since_us() == {key(1): 3}
        assert not damage.found(tmp_path)
    assert path.read_bytes()[:8] == b"feddelv2"


def test_a_folder_that_cannot_be_used_is_named_and_the_file_is_for_us_alone(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=str(tmp_path / "file")):
        open_journal(tmp_path / "file")

    journal = open_journal(tmp_path / "folder")

    assert os.stat(tmp_path / "folder" / FILE_NAME).st_mode & 0o777 == 0o600
    journal.close()
