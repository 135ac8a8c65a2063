"""Records, parcels, arrivals and notes: what travels, and what a receiver remembers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.errors import DecodeError
from federator.protocol.filters import filter_key, may_travel
from federator.protocol.messages.group_records import (
    MemberRecord,
    frame_key,
    inbox_filter,
    inbox_key,
    inbox_of,
    is_inbox_key,
    is_record,
    parse_record,
)
from federator.protocol.sharing.parcels import (
    Confirmation,
    Parcel,
    pack_confirmation,
    pack_parcel,
    unpack_parcel,
)
from federator.protocol.sharing.returns import Returns
from federator.protocol.types import BROKER_ID_MAX

levels = st.text(
    st.characters(exclude_characters="/+#$\0", exclude_categories=["Cs", "Cc", "Cn", "Co"]),
    min_size=1,
    max_size=5,
)
ids = st.integers(0, BROKER_ID_MAX)

# Records


@given(ids, st.integers(1, 2**31 - 1), st.booleans(), levels, st.lists(levels, min_size=1))
def test_a_record_survives_the_way_as_a_filter_that_no_client_can_subscribe(
    broker, members, crossed, group, path
):
    record = MemberRecord(broker, members, crossed, group, "/".join(path))

    text = record.encode()

    assert parse_record(text) == record
    assert is_record(text)
    assert not may_travel(text)


@pytest.mark.parametrize(
    "text",
    [
        "$fed/members/1/0/0/g/a",
        "$fed/members/01/1/0/g/a",
        "$fed/members/1/1/2/g/a",
        "$fed/members/4294967296/1/0/g/a",
        "$fed/members/1/1/0/g",
        "$fed/members/1/1/0/g+/a",
        "$fed/members/1/1/0/g/a/#/b",
        "$fed/members/1/1/0/g/$SYS/#",
        "$fed/members/-1/1/0/g/a",
        "$fed/inbox/",
        "$fed/inbox/x",
        "$fed/inbox/4294967296",
        "$fed/other/1",
        "a/b",
    ],
)
def test_what_is_no_record_is_not_taken_for_one(text):
    assert not is_record(text)


def test_a_record_that_no_announcement_can_carry_is_not_made():
    assert MemberRecord(1, 1, False, "g", "x" * 65_530).encode() is None


@given(ids, levels)
def test_inboxes_have_keys_of_their_own(broker, filter):
    assert inbox_of(inbox_filter(broker)) == broker
    assert frame_key(inbox_filter(broker)).to_bytes(8, "big") == inbox_key(broker)
    assert is_inbox_key(inbox_key(broker))
    assert not is_inbox_key(frame_key(filter).to_bytes(8, "big"))
    assert frame_key(filter) & 2**63 - 1 == filter_key(filter) & 2**63 - 1


# Parcels


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.binary())
def test_a_parcel_arrives_as_it_was_packed(epoch, number, run):
    parcel = unpack_parcel(memoryview(pack_parcel(epoch, number) + run))

    assert parcel == Parcel(epoch, number, memoryview(run))


@given(
    st.integers(0, 2**64 - 1),
    st.lists(st.tuples(st.integers(0, 99), st.integers(99, 2**64 - 1)), min_size=1, max_size=256),
)
def test_a_confirmation_arrives_as_it_was_packed(epoch, ranges):
    confirmation = Confirmation(epoch, tuple(ranges))

    assert unpack_parcel(memoryview(pack_confirmation(confirmation))) == confirmation


@given(st.binary(max_size=60))
def test_noise_is_refused_or_is_a_parcel_and_nothing_else_happens(body):
    try:
        content = unpack_parcel(memoryview(body))
    except DecodeError:
        return
    if isinstance(content, Parcel):
        assert pack_parcel(content.epoch, content.number) + bytes(content.run) == body
    else:
        assert pack_confirmation(content) == body


def test_too_many_ranges_and_ranges_that_end_before_they_begin_are_refused():
    for ranges in (((5, 4),), ((1, 1),) * 257):
        body = b"\x02" + (7).to_bytes(8, "big")
        body += b"".join(n.to_bytes(8, "big") for pair in ranges for n in pair)
        with pytest.raises(DecodeError):
            unpack_parcel(memoryview(body))


# Notes; parcels that arrive are in arrivals.txt


@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_a_note_is_kept_for_its_time_and_gone_after_twice_that(noted_ms, waited_ms):
    returns = Returns(note_ms=1_000)
    for at_ms in range(0, noted_ms, 400):  # others come and go before
        returns.note(b"other", 1, now_ms=at_ms)
    returns.note(b"ours", 3, now_ms=noted_ms)

    found = returns.take(b"ours", now_ms=noted_ms + waited_ms)

    assert found == 3 or waited_ms >= 1_000
    assert found == 0 or waited_ms <= 2_000


def test_notes_are_bounded():
    returns = Returns(notes_max=10, note_ms=1_000)
    for number in range(100):
        returns.note(b"%d" % number, 1, now_ms=0)

    known = [n for n in range(100) if returns.take(b"%d" % n, now_ms=0)]

    assert known == list(range(80, 100))
