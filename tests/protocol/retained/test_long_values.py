"""A value that is longer than a letter comes in parts."""

import pytest

from federator.protocol.forwarding.parts import WHOLE_BYTES_MAX
from federator.protocol.messages.control import RetainedEntry
from federator.protocol.retained.long_values import PART_BYTES, RESTARTS_MAX, LongValue

GIVER = 1
WHOLE = bytes(range(256)) * 1_000  # four parts


def entry_of(time_us, topic="t/1"):
    return RetainedEntry(topic, time_us, 0, GIVER, 7, deleted=False)


ENTRY = entry_of(5)


def put(value, at, *, entry=ENTRY, whole=WHOLE, size=None):
    part = whole[at : at + PART_BYTES]
    return value.put(entry, part, at=at, size=len(whole) if size is None else size)


def test_the_parts_of_a_value_are_put_together():
    value = LongValue()
    for at in range(0, len(WHOLE) - PART_BYTES, PART_BYTES):
        assert value.next_at(GIVER, "t/1") == at
        assert put(value, at) == b""
    assert put(value, value.next_at(GIVER, "t/1")) == WHOLE
    assert value.next_at(GIVER, "t/1") == 0


def test_a_value_that_changes_meanwhile_begins_anew_but_not_for_ever():
    value = LongValue()
    value.next_at(GIVER, "t/1")
    for time_us in range(RESTARTS_MAX + 1):
        assert put(value, 0, entry=entry_of(time_us)) == b""
        assert put(value, PART_BYTES, entry=entry_of(time_us)) == b""
    assert put(value, 0, entry=entry_of(99)) is None

    value.next_at(GIVER, "t/2")
    assert put(value, 0) == b""
    assert put(value, PART_BYTES, entry=entry_of(6)) == b"", "its beginning is missing"
    assert value.next_at(GIVER, "t/2") == 0


def test_another_value_is_another_matter():
    value = LongValue()
    value.next_at(GIVER, "t/1")
    put(value, 0)
    assert value.next_at(GIVER, "t/1") == PART_BYTES
    assert value.next_at(2, "t/1") == 0
    assert value.next_at(GIVER, "t/1") == 0


@pytest.mark.parametrize(
    "lie",
    [
        pytest.param({"whole": WHOLE[:5], "size": 9}, id="short parts"),
        pytest.param({"size": 9}, id="more than its size"),
        pytest.param({"size": WHOLE_BYTES_MAX + 1}, id="too long"),
        pytest.param({"whole": b"", "size": 9}, id="nothing"),
    ],
)
def test_what_cannot_become_whole_is_given_up(lie):
    value = LongValue()
    value.next_at(GIVER, "t/1")
    assert put(value, 0, **lie) is None


def test_who_repeats_one_part_for_ever_is_given_up():
    value = LongValue()
    value.next_at(GIVER, "t/1")
    answers = [put(value, 0) for _ in range(2 * RESTARTS_MAX + 4)]
    assert None in answers
