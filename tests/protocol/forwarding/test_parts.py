"""What is cut into parts comes out whole, or not at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.errors import DecodeError
from federator.protocol.forwarding.parts import (
    PART_HEADER_BYTES,
    WHOLE_BYTES_MAX,
    WHOLES_MAX,
    Assembly,
    cut,
    is_part,
    sender_of,
)
from federator.protocol.types import BrokerId

ME = BrokerId(7)


@given(st.binary(min_size=1, max_size=300), st.integers(PART_HEADER_BYTES + 1, 400))
def test_parts_are_as_short_as_wanted_and_make_the_whole(content, part_bytes):
    assembly = Assembly()

    parts = list(cut(content, part_bytes, sender=ME, number=1))

    assert all(is_part(part) and sender_of(part) == ME for part in parts)
    assert max(map(len, parts)) <= part_bytes
    *before, last = [assembly.put(part) for part in parts]
    assert before == [None] * (len(parts) - 1)
    assert last == content


@given(
    st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=WHOLES_MAX),
    st.data(),
)
def test_of_several_that_take_turns_each_is_whole_unless_it_lost_a_part(contents, data):
    left = [
        list(cut(content, PART_HEADER_BYTES + 9, sender=ME, number=number))
        for number, content in enumerate(contents)
    ]
    assembly, came, lost = Assembly(), [], set()

    while turns := [number for number, parts in enumerate(left) if parts]:
        number = data.draw(st.sampled_from(turns))
        part = left[number].pop(0)
        if data.draw(st.sampled_from([False, False, False, True])):
            lost.add(number)
        elif (whole := assembly.put(part)) is not None:
            came.append(whole)

    assert sorted(came) == sorted(c for number, c in enumerate(contents) if number not in lost)


@given(st.binary(max_size=60).map(lambda rest: b"\\x04" + rest))
def test_what_is_no_part_is_refused_and_nothing_breaks(payload):
    try:
        sender_of(payload)
        Assembly().put(payload)
    except DecodeError:
        pass


def test_a_whole_that_is_too_long_is_refused():
    [part] = cut(b"x", 100, sender=ME, number=1)
    lie = part[:9] + (WHOLE_BYTES_MAX + 1).to_bytes(4, "big") + part[13:]

    with pytest.raises(DecodeError):
        Assembly().put(lie)


def test_one_neighbour_begins_only_so_much_at_a_time():
    assembly = Assembly()
    begun = [list(cut(b"ab", PART_HEADER_BYTES + 1, sender=ME, number=n)) for n in range(6)]

    for first, _ in begun:
        assembly.put(first)
    wholes = [assembly.put(second) for _, second in begun]

    assert wholes == [None] * (6 - WHOLES_MAX) + [b"ab"] * WHOLES_MAX
